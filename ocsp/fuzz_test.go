package ocsp

import (
	"bytes"
	"flag"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	xocsp "golang.org/x/crypto/ocsp"

	"github.com/tlsproxy/tlsproxy/internal/pki"
)

var update = flag.Bool("update", false, "write the responses in testdata anew")

// corpus returns the wrong answers of the hostile responder that are
// responses, and right ones of each kind of signer, by name.
func corpus(t testing.TB) (*fixed, map[string][]byte) {
	w := fixedWorld(t)
	responses := map[string][]byte{"good": build(t, w.good())}
	for name, answer := range wrongAnswers(t, w, new(atomic.Int64)) {
		if name == "endless body" || answer.want == ReasonTimeout || answer.want == ReasonNetwork || answer.want == ReasonContentEncoding {
			continue
		}
		rec := &localWriter{header: make(http.Header), code: http.StatusOK}
		req, err := http.NewRequest(http.MethodPost, responderURL, http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		answer.serve(rec, req)
		if rec.code == http.StatusOK && rec.header.Get("Content-Type") == "application/ocsp-response" {
			responses[name] = rec.body.Bytes()
		}
	}
	responses["delegate"] = build(t, signedBy(w.good(), w.delegate(t, w.ca, pki.Request{})))
	several := w.good()
	several.ByName = true
	several.Singles = append(several.Singles, several.Singles[0])
	several.Singles[0].CertID.Issuer = w.other.Certificate
	responses["several"] = build(t, several)
	return w, responses
}

// The responses that tests and fuzzing start from are the same bytes in every
// run, and committed.
func TestCorpusIsCommitted(t *testing.T) {
	_, responses := corpus(t)
	if len(responses) < 25 {
		t.Fatalf("only %d responses", len(responses))
	}
	dir := filepath.Join("testdata", "responses")
	for name, der := range responses {
		path := filepath.Join(dir, strings.ReplaceAll(name, " ", "-")+".der")
		if *update {
			if err := os.MkdirAll(dir, 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, der, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		got, err := os.ReadFile(path)
		if err != nil {
			t.Error(err)
		} else if !bytes.Equal(got, der) {
			t.Errorf("%s is not what is built (go test -run %s -update)", path, t.Name())
		}
	}
}

func addCorpus(f *testing.F) {
	files, err := filepath.Glob(filepath.Join("testdata", "responses", "*.der"))
	if err != nil || len(files) == 0 {
		f.Fatalf("no seeds: %v", err)
	}
	for _, file := range files {
		der, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(der)
	}
}

// FuzzVerify checks that nothing is accepted but what the issuer signed.
func FuzzVerify(f *testing.F) {
	addCorpus(f)
	w, responses := corpus(f)
	signed := make(map[string]bool)
	for _, der := range responses {
		if b, err := parse(der); err == nil {
			signed[string(b.signed)] = true
		}
	}
	f.Fuzz(func(t *testing.T, der []byte) {
		r, err := Verify(der, w.cert.Leaf, w.ca.Certificate, w.now)
		if err != nil {
			if r != nil || ReasonOf(err) == "" {
				t.Errorf("refusal %v with response %v", err, r)
			}
			return
		}
		b, err := parse(der)
		if err != nil || !signed[string(b.signed)] {
			t.Errorf("accepted what nobody signed: %x", der)
		}
		if r.Status != Good && r.Status != Revoked && r.Status != Unknown {
			t.Errorf("status %d", r.Status)
		}
	})
}

// FuzzParse compares the parser with another on what both accept.
func FuzzParse(f *testing.F) {
	addCorpus(f)
	ca := newCA(f, pki.CAOptions{KeyType: pki.RSA2048})
	pss := goodSpec(ca, serverCert(f, ca, "a.test").Leaf, now)
	pss.PSS = true
	f.Add(build(f, pss))
	f.Fuzz(func(t *testing.T, der []byte) {
		ours, err := parse(der)
		if err != nil {
			if ReasonOf(err) == "" {
				t.Errorf("error without a reason: %v", err)
			}
			return
		}
		_, _ = parseAlgorithm(ours.algorithm)
		theirs, err := xocsp.ParseResponse(der, nil)
		if err != nil || len(ours.singles) != 1 {
			return
		}
		s := ours.singles[0]
		statuses := map[Status]int{Good: xocsp.Good, Revoked: xocsp.Revoked, Unknown: xocsp.Unknown}
		switch {
		case s.serial.Cmp(theirs.SerialNumber) != 0:
			t.Errorf("serial %v; the other parser says %v", s.serial, theirs.SerialNumber)
		case statuses[s.status] != theirs.Status:
			t.Errorf("status %v; the other parser says %v", s.status, theirs.Status)
		case !s.thisUpdate.Equal(theirs.ThisUpdate), !s.nextUpdate.Equal(theirs.NextUpdate), !ours.producedAt.Equal(theirs.ProducedAt):
			t.Errorf("times %v %v %v; the other parser says %v %v %v", s.thisUpdate, s.nextUpdate, ours.producedAt, theirs.ThisUpdate, theirs.NextUpdate, theirs.ProducedAt)
		case !bytes.Equal(ours.signed, theirs.TBSResponseData), !bytes.Equal(ours.signature, theirs.Signature):
			t.Error("what is signed, or the signature, differs")
		}
	})
}
