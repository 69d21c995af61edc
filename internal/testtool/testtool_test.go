package testtool

import (
	"os"
	"os/exec"
	"strings"
	"testing"
)

func TestRequireFindsProgramsOutsidePath(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	if got := Require(t, "ip", "iproute2"); !strings.HasSuffix(got, "/ip") {
		t.Errorf("Require(ip) = %q", got)
	}
}

// fatal is a testing.TB that notes Fatalf instead of failing.
type fatal struct {
	testing.TB
	msg string
}

func (f *fatal) Helper()                     {}
func (f *fatal) Fatalf(msg string, _ ...any) { f.msg = msg; panic(f) }

func expectFatal(t *testing.T, call func(testing.TB)) {
	t.Helper()
	f := &fatal{TB: t}
	defer func() {
		if recover() != f {
			t.Error("did not fail the test")
		}
	}()
	call(f)
}

func TestMissingProgramFails(t *testing.T) {
	expectFatal(t, func(tb testing.TB) { Require(tb, "no-such-program-anywhere", "none") })
}

func TestUnpinnedVersionFails(t *testing.T) {
	expectFatal(t, func(tb testing.TB) { Install(tb, "example.com/tool") })
	expectFatal(t, func(tb testing.TB) { Install(tb, "example.com/tool@latest") })
}

func TestInstallBuildsOnce(t *testing.T) {
	const pkg = "github.com/letsencrypt/pebble/v2/cmd/pebble-challtestsrv@v2.10.3"
	bin := Install(t, pkg)
	before, err := os.Stat(bin)
	if err != nil {
		t.Fatal(err)
	}
	if again := Install(t, pkg); again != bin {
		t.Errorf("second Install = %q; want %q", again, bin)
	}
	after, err := os.Stat(bin)
	if err != nil {
		t.Fatal(err)
	}
	if !after.ModTime().Equal(before.ModTime()) {
		t.Error("second Install built the program again")
	}
	// The flag package exits with 2 on an unknown flag, and prints the usage.
	out, err := exec.CommandContext(t.Context(), bin, "-no-such-flag").CombinedOutput()
	if err == nil || !strings.Contains(string(out), "Usage of") {
		t.Errorf("%s does not run: %v\n%s", bin, err, out)
	}
}
