package config

import (
	"encoding"
	"errors"
	"fmt"
	"math"
	"net/netip"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"
)

var (
	durationType = reflect.TypeFor[time.Duration]()
	reuseType    = reflect.TypeFor[ReuseWindow]()
	sizeType     = reflect.TypeFor[Size]()
	prefixType   = reflect.TypeFor[netip.Prefix]()
	stringsType  = reflect.TypeFor[Strings]()
	statusType   = reflect.TypeFor[StatusRange]()
)

// isScalar reports whether a value of type t is written as a single text.
func isScalar(t reflect.Type) bool {
	switch t.Kind() {
	case reflect.Struct:
		return t == prefixType || t == statusType
	case reflect.Pointer, reflect.Map, reflect.Slice:
		return false
	}
	return true
}

// setScalar parses text as v's type wants it, within the bounds of tag. On an
// error v is not changed.
func setScalar(v reflect.Value, text string, tag reflect.StructTag) error {
	switch {
	case v.Type() == prefixType:
		p, err := parsePrefix(text)
		if err == nil {
			v.Set(reflect.ValueOf(p))
		}
		return err
	case v.Kind() == reflect.Struct:
		return v.Addr().Interface().(encoding.TextUnmarshaler).UnmarshalText([]byte(text))
	case v.Kind() == reflect.String:
		return setString(v, text)
	case v.Kind() == reflect.Bool:
		b, err := parseBool(text)
		if err == nil {
			v.SetBool(b)
		}
		return err
	}
	x, err := wordOrNumber(v.Type(), text, tag)
	switch {
	case err != nil:
		return err
	case v.CanFloat():
		v.SetFloat(x)
	default:
		v.SetInt(int64(x))
	}
	return nil
}

// wordOrNumber parses one of the words of tag, of which the first is -1 and the
// second -2, or a number within the bounds of tag.
func wordOrNumber(t reflect.Type, text string, tag reflect.StructTag) (float64, error) {
	words := tag.Get("words")
	if words != "" {
		if i := slices.Index(strings.Split(words, ","), text); i >= 0 {
			return float64(-1 - i), nil
		}
	}
	x, err := parseNumber(t, text)
	if err == nil {
		err = checkBounds(t, x, text, tag)
	}
	if err != nil && words != "" {
		err = fmt.Errorf("%w (or %s)", err, strings.ReplaceAll(words, ",", " or "))
	}
	return x, err
}

// setString sets a string; one of a closed set must be in it.
func setString(v reflect.Value, text string) error {
	if i := strings.IndexFunc(text, func(r rune) bool { return r < ' ' || r == 0x7f }); i >= 0 {
		return fmt.Errorf("%q has a control character", clip(text))
	}
	if c, ok := reflect.TypeAssert[interface{ choices() []string }](v); ok {
		text = switchWord(v.Type(), text)
		if choices := c.choices(); text != "" && !slices.Contains(choices, text) {
			_, hint := suggest(text, choices)
			return fmt.Errorf("unknown value %q: %s", clip(text), hint)
		}
	}
	v.SetString(text)
	return nil
}

// switchWord lets a [Switch] be written as YAML writes booleans.
func switchWord(t reflect.Type, text string) string {
	if t == reflect.TypeFor[Switch]() {
		switch text {
		case "true", "yes":
			return "on"
		case "false", "no":
			return "off"
		}
	}
	return text
}

func parseBool(text string) (bool, error) {
	switch text {
	case "true", "on", "yes":
		return true, nil
	case "false", "off", "no":
		return false, nil
	}
	return false, fmt.Errorf("expected true or false, found %q", text)
}

func parsePrefix(text string) (netip.Prefix, error) {
	if a, err := netip.ParseAddr(text); err == nil && a.Zone() == "" {
		a = a.Unmap()
		return netip.PrefixFrom(a, a.BitLen()), nil
	}
	p, err := netip.ParsePrefix(text)
	if err != nil {
		return p, fmt.Errorf("%q is not a network: write it like 10.0.0.0/8, fd00::/8 or 192.0.2.1", text)
	}
	if m := p.Masked(); m != p {
		return p, fmt.Errorf("%q has bits beyond its mask: write %s, or %s for the one address", text, m, p.Addr())
	}
	return p, nil
}

// parseNumber parses an integer, a fraction, a duration or a size.
func parseNumber(t reflect.Type, text string) (float64, error) {
	switch {
	case t == durationType, t == reuseType:
		return parseDuration(text)
	case t == sizeType:
		return parseSize(text)
	case t.Kind() == reflect.Float64:
		x, err := strconv.ParseFloat(text, 64)
		if err != nil || math.IsNaN(x) || math.IsInf(x, 0) {
			return 0, fmt.Errorf("%q is not a number", clip(text))
		}
		return x, nil
	}
	x, err := strconv.ParseInt(text, 10, 32)
	if errors.Is(err, strconv.ErrRange) {
		return 0, fmt.Errorf("%s is out of range", clip(text))
	}
	if err != nil {
		return 0, fmt.Errorf("%q is not a whole number", clip(text))
	}
	return float64(x), nil
}

func parseDuration(text string) (float64, error) {
	x, err := time.ParseDuration(text)
	if err == nil {
		return float64(x), nil
	}
	if _, err := strconv.ParseFloat(text, 64); err == nil {
		return 0, fmt.Errorf("%q lacks a unit: write it like 500ms, 10s, 5m or 24h", clip(text))
	}
	if days, ok := strings.CutSuffix(text, "d"); ok {
		if n, err := strconv.Atoi(days); err == nil && n > 0 && n < 10000 {
			return 0, fmt.Errorf("%q: days are not a unit: write %dh", text, 24*n)
		}
	}
	return 0, fmt.Errorf("%q is not a duration: write it like 500ms, 10s, 5m or 24h", clip(text))
}

// units are those of sizes.
func units() map[string]float64 {
	return map[string]float64{
		"B": 1, "kB": 1e3, "KB": 1e3, "MB": 1e6, "GB": 1e9, "TB": 1e12,
		"KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40,
	}
}

func parseSize(text string) (float64, error) {
	digits := len(text) - len(strings.TrimLeft(text, "0123456789."))
	x, err := strconv.ParseFloat(text[:digits], 64)
	unit := strings.TrimSpace(text[digits:])
	factor, known := units()[unit]
	switch {
	case strings.HasPrefix(text, "-"):
		return 0, fmt.Errorf("%q is negative", clip(text))
	case err != nil || unit != "" && !known:
		return 0, fmt.Errorf("%q is not a size: write it like 512B, 64KiB or 10MiB", clip(text))
	case x == 0:
		return 0, nil
	case unit == "":
		return 0, fmt.Errorf("%q lacks a unit: write it like 512B, 64KiB or 10MiB", clip(text))
	case x*factor > 1<<50:
		return 0, fmt.Errorf("%s is out of range", clip(text))
	}
	return math.Ceil(x * factor), nil
}

// checkBounds applies the tags min and max; zero is the default and within any.
func checkBounds(t reflect.Type, x float64, text string, tag reflect.StructTag) error {
	low, high := tag.Get("min"), tag.Get("max")
	switch {
	case x == 0:
		return nil
	case x < 0:
		return fmt.Errorf("%s is negative", clip(text))
	case low != "" && x < mustParse(t, low):
		return fmt.Errorf("%s is too small: the least is %s", clip(text), low)
	case high != "" && x > mustParse(t, high):
		return fmt.Errorf("%s is too large: the most is %s", clip(text), high)
	}
	return nil
}

// mustParse parses a number of the schema.
func mustParse(t reflect.Type, text string) float64 {
	x, err := parseNumber(t, text)
	if err != nil {
		panic("config: schema: " + err.Error())
	}
	return x
}

// wanted names what a type is written as.
func wanted(t reflect.Type) string {
	switch {
	case t == prefixType:
		return "a network"
	case t == durationType, t == reuseType:
		return "a duration"
	case t == sizeType:
		return "a size"
	case t == statusType:
		return "a status"
	case t.Kind() == reflect.Bool:
		return "true or false"
	case t.Kind() == reflect.String:
		return "a text"
	}
	return "a number"
}

// clip shortens a text for an error.
func clip(s string) string {
	const most = 80
	if len(s) <= most {
		return s
	}
	return strings.ToValidUTF8(s[:most], "") + "…"
}
