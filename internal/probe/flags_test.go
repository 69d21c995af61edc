package probe

import (
	"errors"
	"flag"
	"io"
	"os"
	"regexp"
	"strings"
	"testing"
)

func TestUsageErrors(t *testing.T) {
	tests := []struct {
		args, want string
	}{
		{"", "one HOST:PORT is needed, got 0"},
		{"a:1 b:2", "got 2"},
		{"-nonsense a:1", "flag provided but not defined"},
		{"a:0", `port "0"`},
		{"a:65536", `port "65536"`},
		{"a:https", `port "https"`},
		{":443", "names no host"},
		{"1:2:3", "is not HOST:PORT"},
		{"a:1 -timeout 0s", "-timeout 0s"},
		{"a:1 -timeout soon", "invalid value"},
		{"a:1 -count 0", "-count 0"},
		{"a:1 -count 101", "from 1 to 100"},
		{"a:1 -require speed", `-require "speed": unknown; known are resumption`},
		{"a:1 -require ,", "names nothing"},
		{"a:1 -require also", "needs -also"},
		{"a:1 -require not-also", "needs -also"},
		{"a:1 -also 127.0.0.1", "an address needs a port"},
		{"a:1 -also @b:1", "no name before the @"},
		{"a:1 -also b:x", `port "x"`},
		{"a:1 -also b!", "is not a host name"},
		{"a:1 -servername ..", "is not a host name"},
		{"a:1 -cafile /nowhere.pem", "-cafile: open /nowhere.pem"},
		{"a:1 -cafile flags_test.go", "no PEM certificate"},
		{"a:1 -cert x.pem", "belong together"},
		{"a:1 -key x.pem", "belong together"},
		{"a:1 -cert /nowhere.pem -key /nowhere.key", "/nowhere.pem"},
	}
	for _, test := range tests {
		t.Run(test.args, func(t *testing.T) {
			var stdout, stderr strings.Builder
			status := Command{}.Run(t.Context(), strings.Fields(test.args), &stdout, &stderr)
			if status != exitUsage || !strings.Contains(stderr.String(), test.want) || stdout.Len() > 0 {
				t.Errorf("status %d, stderr %q; want %q", status, stderr.String(), test.want)
			}
		})
	}
}

func TestHelp(t *testing.T) {
	var stderr strings.Builder
	if status := (Command{}).Run(t.Context(), []string{"-h"}, io.Discard, &stderr); status != exitOK {
		t.Errorf("status = %d", status)
	}
	wantContains(t, stderr.String(), "usage: tlsproxy probe", "-also", "-require", "resumption-1.3", "post-quantum")
}

func TestTargets(t *testing.T) {
	tests := []struct {
		args                string
		address, serverName string
	}{
		{"example.com", "example.com:443", "example.com"},
		{"Example.COM.:8443", "Example.COM.:8443", "example.com"},
		{"127.0.0.1:1", "127.0.0.1:1", ""},
		{"::1", "[::1]:443", ""},
		{"[::1]", "[::1]:443", ""},
		{"[::1]:99", "[::1]:99", ""},
		{"127.0.0.1:1 -servername bücher.example", "127.0.0.1:1", "xn--bcher-kva.example"},
		{"a_b.example:1", "a_b.example:1", "a_b.example"},
	}
	for _, test := range tests {
		o, err := parseFlags(strings.Fields(test.args), io.Discard)
		if err != nil || o.target.address != test.address || o.target.serverName != test.serverName {
			t.Errorf("%s: %+v, %v", test.args, o.target, err)
		}
	}
}

func TestFlagsAfterTarget(t *testing.T) {
	o, err := parseFlags([]string{"-count", "2", "a:1", "-json", "-also", "b:2", "-also", "c"}, io.Discard)
	if err != nil || o.count != 2 || !o.json || len(o.also) != 2 {
		t.Fatalf("%+v, %v", o, err)
	}
	if o.also[0].address != "b:2" || o.also[0].serverName != "a" || o.also[1].address != "a:1" || o.also[1].serverName != "c" {
		t.Errorf("also = %+v", o.also)
	}
}

func FuzzParseTarget(f *testing.F) {
	for _, s := range []string{"a:1", "[::1]:443", "::", "[", "]:1", "a@b:1", "bücher:1", "%25:1"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		base, err := parseTarget("base.test:1", "")
		if err != nil {
			t.Fatal(err)
		}
		for _, parse := range []func() (target, error){
			func() (target, error) { return parseTarget(s, "") },
			func() (target, error) { return parseAlso(s, base) },
		} {
			target, err := parse()
			if err != nil {
				continue
			}
			if strings.ToLower(target.serverName) != target.serverName || strings.ContainsAny(target.serverName, " \n\x00") {
				t.Errorf("%q: server name %q", s, target.serverName)
			}
		}
	})
}

// What is documented is what there is.
func TestDocumented(t *testing.T) {
	content, err := os.ReadFile("../../docs/probe.md")
	if err != nil {
		t.Fatal(err)
	}
	doc := string(content)
	for _, name := range requirementNames() {
		if !strings.Contains(doc, "`"+name+"`") {
			t.Errorf("docs/probe.md does not tell of -require %s", name)
		}
	}
	var help strings.Builder
	if _, err := parseFlags([]string{"-h"}, &help); !errors.Is(err, flag.ErrHelp) {
		t.Fatal(err)
	}
	for _, name := range regexp.MustCompile(`(?m)^  (-[a-z]+)`).FindAllStringSubmatch(help.String(), -1) {
		if !strings.Contains(doc, "`"+name[1]) {
			t.Errorf("docs/probe.md does not tell of %s", name[1])
		}
	}
}
