package cachebench

import (
	"fmt"
	"path/filepath"
	"strings"
)

// measureProfiles shows where the time of an operation goes in a cache that is far
// larger than the processor's own.
func (b *Bench) measureProfiles(r *Report) error {
	size := pick(b, 5_120_000, 204_800)
	cold, err := b.once("coldread %d", size*100)
	if err != nil {
		return err
	}
	s := Section{
		Title: "Where the time goes",
		Text: fmt.Sprintf("The lines of package cache with the most CPU time in calls of each operation, %d entries, lifetime 86,400 s. On the same machine a read of a line that\n", size) +
			fmt.Sprintf("no cache of the processor holds takes %s ns when it waits for the one before, among as much memory as the cache takes.", figure(cold[0])),
		Header: []string{"keys", "operation", "share", "line", ""},
	}
	for _, keys := range []string{"handle", "int"} {
		for _, op := range opNames {
			path := filepath.Join(b.dir, keys+"-"+op+".pprof")
			if _, err := b.once("profile %s %s %d %d %s", keys, op, size, pick(b, 3, 1), path); err != nil {
				return err
			}
			lines, err := linesOf(path, strings.ToUpper(op[:1])+op[1:])
			if err != nil {
				return err
			}
			for _, l := range lines[:min(len(lines), 6)] {
				s.row(keys, op, fmt.Sprintf("%.0f %%", 100*l.share), fmt.Sprintf("%s:%d", l.file, l.line), "`"+strings.ReplaceAll(l.code, "|", "\\|")+"`")
			}
		}
	}
	r.Sections = append(r.Sections, s)
	return nil
}
