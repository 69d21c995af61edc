package pki

import (
	"bytes"
	"encoding/base64"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"testing"

	"golang.org/x/crypto/ocsp"
)

func TestResponderOverHTTP(t *testing.T) {
	ca, err := NewRoot(CAOptions{})
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(NewResponder(ca, ResponderOptions{}))
	defer server.Close()
	get := func(path string) (int, []byte) {
		resp, err := http.Get(server.URL + path)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		return resp.StatusCode, body
	}
	slashes := 0
	for range 40 { // enough serial numbers for every character of base64
		leaf, err := ca.Issue(Request{Names: []string{"a.test"}})
		if err != nil {
			t.Fatal(err)
		}
		request, err := ocsp.CreateRequest(leaf.Leaf, ca.Certificate, nil)
		if err != nil {
			t.Fatal(err)
		}
		encoded := base64.StdEncoding.EncodeToString(request)
		slashes += bytes.Count([]byte(encoded), []byte("/"))
		for _, path := range []string{"/" + url.QueryEscape(encoded), "/some/path/" + url.QueryEscape(encoded), "/" + encoded, "/some/path/" + encoded} {
			code, body := get(path)
			if _, err := ocsp.ParseResponseForCert(body, leaf.Leaf, ca.Certificate); err != nil || code != http.StatusOK {
				t.Errorf("GET %s: %d, %v", path, code, err)
			}
		}
		resp, err := http.Post(server.URL, "application/ocsp-request", bytes.NewReader(request))
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := ocsp.ParseResponseForCert(body, leaf.Leaf, ca.Certificate); err != nil {
			t.Errorf("POST: %v", err)
		}
	}
	if slashes == 0 {
		t.Error("no request had a slash in its base64")
	}
	for _, path := range []string{"", "/", "/robots.txt", "/%30"} {
		if code, _ := get("/x" + path); code != http.StatusBadRequest {
			t.Errorf("GET /x%s: %d; want 400", path, code)
		}
	}
}

// FuzzRespond checks that any request gets an answer that is a response, and
// that nobody else's certificate is vouched for.
func FuzzRespond(f *testing.F) {
	ca, err := NewRoot(CAOptions{})
	if err != nil {
		f.Fatal(err)
	}
	other, err := NewRoot(CAOptions{Name: "other"})
	if err != nil {
		f.Fatal(err)
	}
	for _, issuer := range []*CA{ca, other} {
		leaf, err := issuer.Issue(Request{Names: []string{"a.test"}})
		if err != nil {
			f.Fatal(err)
		}
		request, err := ocsp.CreateRequest(leaf.Leaf, issuer.Certificate, nil)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(request)
	}
	f.Add([]byte("junk"))
	responder := NewResponder(ca, ResponderOptions{})
	f.Fuzz(func(t *testing.T, request []byte) {
		der, err := responder.Respond(request)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := ocsp.ParseResponse(der, ca.Certificate); err != nil {
			if _, ok := err.(ocsp.ResponseError); !ok {
				t.Errorf("answer %x: %v", der, err)
			}
		}
	})
}
