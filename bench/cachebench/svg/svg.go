// Package svg draws the bars and lines of the performance page.
package svg

import (
	"fmt"
	"html"
	"math"
	"strings"
)

// Series is one colour of a panel.
type Series struct {
	Name   string
	Values []float64 // one for each group; NaN: none
}

// Panel is one pair of axes.
type Panel struct {
	Title  string
	Groups []string // below the horizontal axis
	Series []Series
	Log    bool // the vertical axis is logarithmic
	Lines  bool // lines instead of bars
}

// Chart is one or more panels side by side under one title.
type Chart struct {
	Title  string
	Unit   string // of the vertical axes
	Panels []Panel
}

const (
	panelWidth  = 360
	panelHeight = 240
	left        = 52
	top         = 56
	gap         = 24
	legendRow   = 18
)

var colours = []string{"#1f6feb", "#d1242f", "#8250df", "#1a7f37", "#bf8700", "#57606a", "#0a7ea4", "#953800"}

// Draw returns the chart as an SVG document.
func (c Chart) Draw() string {
	var b strings.Builder
	width := left + len(c.Panels)*(panelWidth+gap)
	names := c.names()
	perRow := max(1, width/170)
	rows := (len(names) + perRow - 1) / perRow
	height := top + panelHeight + 44 + rows*legendRow
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" width="%d" height="%d" font-family="sans-serif" font-size="11" role="img">`+"\n", width, height, width, height)
	fmt.Fprintf(&b, `<title>%s</title><rect width="100%%" height="100%%" fill="#ffffff"/>`+"\n", html.EscapeString(c.Title))
	text(&b, 12, 20, "start", 14, c.Title)
	text(&b, 12, 36, "start", 11, c.Unit)
	for i, p := range c.Panels {
		p.draw(&b, float64(left+i*(panelWidth+gap)), names)
	}
	for i, name := range names {
		x, y := float64(12+i%perRow*170), float64(top+panelHeight+44+i/perRow*legendRow)
		fmt.Fprintf(&b, `<rect x="%.0f" y="%.0f" width="10" height="10" fill="%s"/>`, x, y-9, colours[i%len(colours)])
		text(&b, x+15, y, "start", 11, name)
	}
	b.WriteString("</svg>\n")
	return b.String()
}

// names returns every series name once.
func (c Chart) names() (names []string) {
	seen := map[string]bool{}
	for _, p := range c.Panels {
		for _, s := range p.Series {
			if !seen[s.Name] {
				seen[s.Name] = true
				names = append(names, s.Name)
			}
		}
	}
	return names
}

func (p Panel) draw(b *strings.Builder, x float64, names []string) {
	s := p.scale()
	text(b, x, top-6, "start", 12, p.Title)
	for _, t := range s.ticks() {
		y := s.y(t)
		fmt.Fprintf(b, `<line x1="%.1f" y1="%.1f" x2="%.1f" y2="%.1f" stroke="#d8dee4"/>`, x, y, x+panelWidth-20, y)
		text(b, x-4, y+4, "end", 10, number(t))
	}
	step := (panelWidth - 20.0) / float64(len(p.Groups))
	for g, group := range p.Groups {
		text(b, x+(float64(g)+0.5)*step, top+panelHeight+16, "middle", 10, group)
	}
	for i, series := range p.Series {
		colour := colours[indexOf(names, series.Name)%len(colours)]
		if p.Lines {
			drawLine(b, x, step, s, series, colour)
			continue
		}
		bar := step * 0.84 / float64(len(p.Series))
		for g, v := range series.Values {
			if math.IsNaN(v) {
				continue
			}
			y := s.y(v)
			fmt.Fprintf(b, `<rect x="%.1f" y="%.1f" width="%.1f" height="%.1f" fill="%s"><title>%s: %s</title></rect>`,
				x+float64(g)*step+step*0.08+float64(i)*bar, y, bar*0.92, top+panelHeight-y, colour, html.EscapeString(series.Name), number(v))
		}
	}
	b.WriteString("\n")
}

func drawLine(b *strings.Builder, x, step float64, s scale, series Series, colour string) {
	var points []string
	for g, v := range series.Values {
		if math.IsNaN(v) {
			continue
		}
		px, py := x+(float64(g)+0.5)*step, s.y(v)
		points = append(points, fmt.Sprintf("%.1f,%.1f", px, py))
		fmt.Fprintf(b, `<circle cx="%.1f" cy="%.1f" r="3" fill="%s"><title>%s: %s</title></circle>`, px, py, colour, html.EscapeString(series.Name), number(v))
	}
	fmt.Fprintf(b, `<polyline points="%s" fill="none" stroke="%s" stroke-width="2"/>`, strings.Join(points, " "), colour)
}

// A scale leads from values to heights.
type scale struct {
	low, high float64
	log       bool
}

func (p Panel) scale() scale {
	low, high := math.Inf(1), 0.0
	for _, s := range p.Series {
		for _, v := range s.Values {
			if !math.IsNaN(v) {
				high = max(high, v)
				if v > 0 {
					low = min(low, v)
				}
			}
		}
	}
	if high == 0 {
		return scale{0, 1, false}
	}
	if p.Log {
		return scale{math.Pow(10, math.Floor(math.Log10(low))), math.Pow(10, math.Ceil(math.Log10(high*1.001))), true}
	}
	return scale{0, nice(high), false}
}

func (s scale) y(v float64) float64 {
	share := (v - s.low) / (s.high - s.low)
	if s.log {
		share = math.Log(max(v, s.low)/s.low) / math.Log(s.high/s.low)
	}
	return top + panelHeight*(1-share)
}

func (s scale) ticks() (t []float64) {
	if s.log {
		for v := s.low; v <= s.high*1.001; v *= 10 {
			t = append(t, v)
		}
		return t
	}
	for i := range 6 {
		t = append(t, s.high*float64(i)/5)
	}
	return t
}

// nice returns a round number at or above v.
func nice(v float64) float64 {
	unit := math.Pow(10, math.Floor(math.Log10(v)))
	for _, m := range []float64{1, 1.5, 2, 2.5, 3, 4, 5, 6, 8, 10} {
		if m*unit >= v {
			return m * unit
		}
	}
	return 10 * unit
}

func number(v float64) string {
	switch {
	case v >= 1e6:
		return fmt.Sprintf("%.3gM", v/1e6)
	case v >= 1e4:
		return fmt.Sprintf("%.3gk", v/1e3)
	default:
		return fmt.Sprintf("%.3g", v)
	}
}

func text(b *strings.Builder, x, y float64, anchor string, size int, s string) {
	fmt.Fprintf(b, `<text x="%.1f" y="%.1f" text-anchor="%s" font-size="%d" fill="#1f2328">%s</text>`, x, y, anchor, size, html.EscapeString(s))
}

func indexOf(names []string, name string) int {
	for i := range names {
		if names[i] == name {
			return i
		}
	}
	return 0
}
