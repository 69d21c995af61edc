package ocsp

import (
	"os"
	"strings"
	"testing"
)

// Users look a result up in the documentation: every one is there.
func TestResultsAreDocumented(t *testing.T) {
	text, err := os.ReadFile("../docs/ocsp.md")
	if err != nil {
		t.Fatal(err)
	}
	for reason := range reasonWords {
		if !strings.Contains(string(text), "`"+string(reason)+"`") {
			t.Errorf("docs/ocsp.md does not explain %q", string(reason))
		}
	}
}
