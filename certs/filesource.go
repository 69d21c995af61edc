package certs

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// fileSource is a pair of files, or a directory of them.
type fileSource struct {
	files     *Files     // either
	directory *Directory // or
	def       bool

	slots []*slot // guarded by Store.mu

	// The rest belongs to Load, and then to Run.
	stamp   stamp
	retries int       // since the last change that could not be loaded
	retryAt time.Time // zero: when something changes
}

func (f *fileSource) list() []*slot   { return f.slots }
func (f *fileSource) isDefault() bool { return f.def }

func (f *fileSource) newSlot(pair *Files, c *certificate) *slot {
	sl := &slot{label: pair.label(), source: "file", cert: c}
	switch {
	case f.directory != nil:
		sl.source = "directory"
	case pair.PKCS12 != "":
		sl.source = "pkcs12"
	}
	return sl
}

// reading is what is in the files of a source at one time.
type reading struct {
	stamp stamp
	pairs []pairReading
	errs  []*fieldError // of the directory as a whole
}

type pairReading struct {
	files Files
	cert  *certificate  // nil if
	errs  []*fieldError // there are any
}

// read reads all files. The stamp is taken first, so that a change meanwhile
// is noticed afterwards.
func (f *fileSource) read() reading {
	r := reading{stamp: f.takeStamp()}
	pairs := []Files{}
	if f.directory != nil {
		pairs, r.errs = f.directory.pairsIn()
	} else {
		pairs = append(pairs, *f.files)
	}
	for _, pair := range pairs {
		cert, errs := pair.load()
		if f.directory != nil {
			for _, e := range errs {
				e.field = "directory"
			}
		}
		r.pairs = append(r.pairs, pairReading{pair, cert, errs})
	}
	return r
}

// watched are the files and directories that a change may come from.
func (f *fileSource) watched() []string {
	if f.directory == nil {
		return f.files.paths()
	}
	var paths []string
	visitDirs(f.directory.Path, func(dir string, entries []fs.DirEntry, _ error) {
		paths = append(paths, filepath.Join(dir, "*"))
		for _, e := range entries {
			if e.Type()&fs.ModeSymlink != 0 {
				paths = append(paths, filepath.Join(dir, e.Name()))
			}
		}
	})
	if f.directory.PassphraseFile != "" {
		paths = append(paths, f.directory.PassphraseFile)
	}
	return paths
}

// stamp tells two states of a source's files apart without reading them.
type stamp struct {
	text  string
	taken time.Time
	// newest is the latest change: one shortly before the stamp was taken may
	// be followed by another that looks the same, for the clocks of file
	// systems are coarse.
	newest time.Time
}

// differs reports whether something may have changed since old was taken.
func (s stamp) differs(old stamp) bool {
	return s.text != old.text || old.taken.Sub(old.newest) < 2*time.Second
}

func (f *fileSource) takeStamp() stamp {
	s := stamp{taken: time.Now()}
	var b strings.Builder
	add := func(path string) {
		info, err := os.Stat(path)
		if err != nil {
			fmt.Fprintf(&b, "%q %v\n", path, err)
			return
		}
		fmt.Fprintf(&b, "%q %s\n", path, describeFile(info))
		if t := info.ModTime(); t.After(s.newest) && !t.After(s.taken) {
			s.newest = t
		}
	}
	if f.directory == nil {
		for _, path := range f.files.paths() {
			add(path)
		}
	} else {
		if f.directory.PassphraseFile != "" {
			add(f.directory.PassphraseFile)
		}
		visitDirs(f.directory.Path, func(dir string, entries []fs.DirEntry, err error) {
			fmt.Fprintf(&b, "%q %v\n", dir, err)
			for _, e := range entries {
				add(filepath.Join(dir, e.Name()))
			}
		})
	}
	s.text = b.String()
	return s
}

// describeFile is what changes when a file does.
func describeFile(info fs.FileInfo) string {
	text := fmt.Sprintf("%v %d %d", info.Mode(), info.Size(), info.ModTime().UnixNano())
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		text += fmt.Sprintf(" %d:%d", st.Dev, st.Ino)
	}
	return text
}
