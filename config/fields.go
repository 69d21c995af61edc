package config

import (
	"fmt"
	"reflect"
	"strings"
)

// field is one field of a structure of the schema.
type field struct {
	name  string
	index []int
	tag   reflect.StructTag
}

// fieldsOf returns the fields of structure t by their names in the file, with
// those of inlined structures in their place.
func fieldsOf(t reflect.Type) []field {
	var out []field
	for f := range t.Fields() {
		name, rest, _ := strings.Cut(f.Tag.Get("yaml"), ",")
		switch {
		case rest == "inline":
			for _, sub := range fieldsOf(f.Type) {
				sub.index = append([]int{f.Index[0]}, sub.index...)
				out = append(out, sub)
			}
		case f.IsExported():
			out = append(out, field{name: name, index: f.Index, tag: f.Tag})
		}
	}
	return out
}

// suggest returns the choice that was probably meant, "" if none is near, and a
// hint that names it or all there are.
func suggest(got string, choices []string) (meant, hint string) {
	got = strings.ToLower(clip(got))
	best := 1 + max(1, len(got)/3)
	for _, c := range choices {
		d := distance(got, strings.ToLower(c))
		if d >= best && len(c) > 3 && strings.HasPrefix(got, c) {
			d = best - 1 // warning: warn
		}
		if d < best {
			meant, best = c, d
		}
	}
	switch {
	case meant != "":
		return meant, fmt.Sprintf("did you mean %q?", meant)
	case len(choices) == 0:
		return "", "there are none"
	}
	return "", "expected one of " + strings.Join(choices, ", ")
}

// distance is the number of letters to insert, remove, replace or swap with
// their neighbour to make b of a.
func distance(a, b string) int {
	rows := make([][]int, len(a)+1)
	for i := range rows {
		rows[i] = make([]int, len(b)+1)
		rows[i][0] = i
	}
	for j := range len(b) + 1 {
		rows[0][j] = j
	}
	for i := 1; i <= len(a); i++ {
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			d := min(rows[i-1][j]+1, rows[i][j-1]+1, rows[i-1][j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				d = min(d, rows[i-2][j-2]+1)
			}
			rows[i][j] = d
		}
	}
	return rows[len(a)][len(b)]
}
