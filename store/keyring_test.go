package store

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestParseKeyring(t *testing.T) {
	secret := bytes.Repeat([]byte{0xfb, 0xff, 1, 2}, 8)
	other := bytes.Repeat([]byte{3, 4}, 16)
	inHex := hex.EncodeToString(secret)
	want, err := ParseKeyring([]byte(inHex))
	if err != nil {
		t.Fatal(err)
	}
	for name, line := range map[string]string{
		"upper case":     strings.ToUpper(inHex),
		"base64":         base64.StdEncoding.EncodeToString(secret),
		"base64 raw":     base64.RawStdEncoding.EncodeToString(secret),
		"base64 for URL": base64.URLEncoding.EncodeToString(secret),
		"with space":     "  " + inHex + "\t\r",
		"with comments":  "# one\n\n" + inHex + "\n# two\n",
		"with another":   inHex + "\n" + hex.EncodeToString(other),
	} {
		got, err := ParseKeyring([]byte(line))
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if *got.active != *want.active {
			t.Errorf("%s gives another key", name)
		}
	}
	for name, tt := range map[string]struct{ file, want string }{
		"empty":         {"", "no key"},
		"comments only": {"# nothing\n\n", "no key"},
		"too short":     {inHex[:62], "line 1"},
		"too long":      {inHex + "00", "line 1"},
		"passphrase":    {inHex + "\ncorrect horse battery staple", "line 2"},
		"twice":         {inHex + "\n\n" + inHex, "line 3: the key has the same short name"},
		"all zero":      {strings.Repeat("0", 64), "every byte"},
		"two on a line": {inHex + " " + inHex, "line 1"},
	} {
		_, err := ParseKeyring([]byte(tt.file))
		if err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v, want %q", name, err, tt.want)
		}
		if err != nil && (strings.Contains(err.Error(), inHex[:10]) || strings.Contains(err.Error(), "horse")) {
			t.Errorf("%s: the error shows the key: %v", name, err)
		}
	}
}

func TestNewReportsEverything(t *testing.T) {
	keys := writeKeys(t, "", newKey())
	good := Options{Addresses: []string{"127.0.0.1:6379"}, KeyFile: keys}
	empty := filepath.Join(t.TempDir(), "empty")
	if err := os.WriteFile(empty, []byte("\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, tt := range map[string]struct {
		change func(*Options)
		want   []string
	}{
		"nothing":           {func(o *Options) { *o = Options{} }, []string{"no address", "no key file"}},
		"two addresses":     {func(o *Options) { o.Addresses = []string{"a:1", "b:1"} }, []string{"one address"}},
		"no port":           {func(o *Options) { o.Addresses = []string{"10.0.0.5"} }, []string{`"10.0.0.5"`}},
		"unix in a cluster": {func(o *Options) { o.Mode, o.Addresses = Cluster, []string{"unix:/x"} }, []string{"unix"}},
		"no master":         {func(o *Options) { o.Mode = Sentinel }, []string{"master's name"}},
		"master, single":    {func(o *Options) { o.MasterName = "m" }, []string{"no meaning"}},
		"cluster with db":   {func(o *Options) { o.Mode, o.DB = Cluster, 1 }, []string{"no numbered databases"}},
		"mode":              {func(o *Options) { o.Mode = "clusters" }, []string{`"clusters"`}},
		"negative":          {func(o *Options) { o.Timeout, o.PoolSize, o.DB = -1, -1, -1 }, []string{"timeout", "pool size", "database"}},
		"key file missing":  {func(o *Options) { o.KeyFile = "/nonexistent/keys" }, []string{"/nonexistent/keys"}},
		"password missing":  {func(o *Options) { o.PasswordFile = "/nonexistent/pw" }, []string{"/nonexistent/pw"}},
		"password empty":    {func(o *Options) { o.PasswordFile = empty }, []string{"is empty"}},
		"sentinel password": {func(o *Options) {
			o.Mode, o.MasterName, o.SentinelPasswordFile = Sentinel, "m", "/nonexistent/pw"
		}, []string{"/nonexistent/pw"}},
	} {
		o := good
		tt.change(&o)
		s, err := New(o)
		if err == nil {
			s.Close()
			t.Errorf("%s was taken", name)
			continue
		}
		for _, want := range tt.want {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %v does not say %q", name, err, want)
			}
		}
	}
}

// The same value is never sealed the same way twice, nor under one key.
func TestSealing(t *testing.T) {
	ring, err := ParseKeyring([]byte(newKey()))
	if err != nil {
		t.Fatal(err)
	}
	seal := func(purpose, id string) []byte {
		b, err := ring.seal(ring.active, purpose, []byte(id), []byte("plain"))
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	a := seal("p", "id")
	if bytes.Equal(a, seal("p", "id")) {
		t.Error("sealed the same way twice")
	}
	if got, err := ring.open("p", []byte("id"), a); err != nil || string(got) != "plain" {
		t.Errorf("%q, %v", got, err)
	}
	for _, as := range [][2]string{{"p", "ie"}, {"q", "id"}, {"pi", "d"}, {"", "pid"}} {
		if _, err := ring.open(as[0], []byte(as[1]), a); err == nil {
			t.Errorf("opened as %q %q", as[0], as[1])
		}
	}
	another, err := ParseKeyring([]byte(newKey()))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := another.open("p", []byte("id"), a); err == nil {
		t.Error("opened with another key")
	}
}

func FuzzParseKeyring(f *testing.F) {
	f.Add([]byte(newKey()))
	f.Add([]byte("# x\n" + strings.Join(newKeys(2), "\n")))
	f.Add([]byte("\x00\xff\n="))
	f.Fuzz(func(t *testing.T, b []byte) {
		k, err := ParseKeyring(b)
		if (k == nil) == (err == nil) {
			t.Fatal(k, err)
		}
		if err == nil && (k.active == nil || len(k.keys) == 0 || k.byHint[k.active.hint] != k.active) {
			t.Fatalf("%+v", k)
		}
	})
}

func FuzzOpen(f *testing.F) {
	ring, err := ParseKeyring([]byte(newKey()))
	if err != nil {
		f.Fatal(err)
	}
	good, err := ring.seal(ring.active, "p", []byte("id"), []byte("plain"))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(good)
	f.Add([]byte{})
	f.Add(good[:sealExtra-1])
	f.Fuzz(func(t *testing.T, b []byte) {
		plain, err := ring.open("p", []byte("id"), b)
		if err == nil && !bytes.Equal(b, good) {
			t.Fatalf("%x opened as %q", b, plain)
		}
	})
}

// What an ACL user needs is what the documentation says.
func TestACLRuleIsDocumented(t *testing.T) {
	b, err := os.ReadFile("../docs/fleet.md")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(b), "user tlsproxy on >PASSWORD "+ACLRule+"\n") {
		t.Errorf("docs/fleet.md does not show %q", ACLRule)
	}
}
