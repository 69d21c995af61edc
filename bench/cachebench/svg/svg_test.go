package svg

import (
	"encoding/xml"
	"io"
	"math"
	"strings"
	"testing"
)

// TestDraw says that a chart is well-formed and shows each value once.
func TestDraw(t *testing.T) {
	doc := Chart{Title: "a < b", Unit: "ns", Panels: []Panel{
		{Title: "bars", Groups: []string{"1", "2"}, Series: []Series{{"x", []float64{1, 2}}, {"y", []float64{3, math.NaN()}}}},
		{Title: "lines", Groups: []string{"1", "2"}, Lines: true, Log: true, Series: []Series{{"x", []float64{10, 12345}}}},
	}}.Draw()
	d := xml.NewDecoder(strings.NewReader(doc))
	for {
		if _, err := d.Token(); err == io.EOF {
			break
		} else if err != nil {
			t.Fatal(err)
		}
	}
	for _, want := range []string{">x: 1<", ">x: 2<", ">y: 3<", ">x: 12.3k<", "a &lt; b"} {
		if strings.Count(doc, want) < 1 {
			t.Errorf("no %q in the chart", want)
		}
	}
}
