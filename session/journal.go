package session

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// journalName is the file in Options.StateDir. It holds names and times, no
// secrets.
const journalName = "session-revocations.json"

// journal keeps the revocations on disk. The zero value keeps nothing.
type journal struct{ dir string }

type journalFile struct {
	Version int             `json:"version"`
	SHA256  string          `json:"sha256"` // of Records
	Records json.RawMessage `json:"records"`
}

// load returns what save wrote last, nothing if there was no save.
func (j journal) load() ([]Record, error) {
	if j.dir == "" {
		return nil, nil
	}
	b, err := os.ReadFile(j.path())
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var f journalFile
	if err := json.Unmarshal(b, &f); err != nil {
		return nil, fmt.Errorf("%s: %w", j.path(), err)
	}
	if f.Version != 1 {
		return nil, fmt.Errorf("%s: version %d, want 1", j.path(), f.Version)
	}
	if sum := sha256.Sum256(f.Records); hex.EncodeToString(sum[:]) != f.SHA256 {
		return nil, fmt.Errorf("%s: checksum does not match its records", j.path())
	}
	var records []Record
	if err := json.Unmarshal(f.Records, &records); err != nil {
		return nil, fmt.Errorf("%s: %w", j.path(), err)
	}
	for i := range records {
		if records[i].Subject, err = records[i].canonical(); err != nil {
			return nil, fmt.Errorf("%s: %w", j.path(), err)
		}
	}
	return records, nil
}

// setAside renames a file that cannot be read, so that it can be looked at.
func (j journal) setAside() (path string, err error) {
	path = j.path() + ".corrupt"
	return path, os.Rename(j.path(), path)
}

// save replaces the file: after a crash there is the old one or the new one.
func (j journal) save(records []Record) error {
	if j.dir == "" {
		return nil
	}
	raw, err := json.Marshal(records)
	if err != nil {
		return err
	}
	sum := sha256.Sum256(raw)
	b, err := json.Marshal(journalFile{Version: 1, SHA256: hex.EncodeToString(sum[:]), Records: raw})
	if err != nil {
		return err
	}
	if err := os.MkdirAll(j.dir, 0o700); err != nil {
		return err
	}
	return replaceFile(j.path(), append(b, '\n'))
}

func (j journal) path() string { return filepath.Join(j.dir, journalName) }

func replaceFile(path string, b []byte) (err error) {
	dir := filepath.Dir(path)
	f, err := os.CreateTemp(dir, "."+filepath.Base(path)+".*")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			os.Remove(f.Name())
		}
	}()
	_, err = f.Write(b)
	if err == nil {
		err = f.Sync()
	}
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		return err
	}
	if d, derr := os.Open(dir); derr == nil {
		defer d.Close()
		d.Sync() // not every file system can; the rename stands either way
	}
	return nil
}
