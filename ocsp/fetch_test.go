package ocsp

import (
	"bytes"
	"crypto/tls"
	"encoding/base64"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tlsproxy/tlsproxy/internal/pki"
)

func TestScheduleRules(t *testing.T) {
	tests := map[string]struct{ got, want time.Duration }{
		"half of what is left":        {afterSuccess(10*time.Hour, 0.5), 5 * time.Hour},
		"less a tenth":                {afterSuccess(10*time.Hour, 0), 4*time.Hour + 30*time.Minute},
		"plus a tenth":                {afterSuccess(10*time.Hour, 1), 5*time.Hour + 30*time.Minute},
		"at least a minute":           {afterSuccess(time.Minute, 0.5), time.Minute},
		"nothing left":                {afterSuccess(-time.Hour, 0.5), time.Minute},
		"first failure":               {afterFailure(1, 0.5), time.Minute},
		"first failure, low":          {afterFailure(1, 0), 30 * time.Second},
		"first failure, high":         {afterFailure(1, 1), 90 * time.Second},
		"third failure":               {afterFailure(3, 0.5), 4 * time.Minute},
		"tenth failure":               {afterFailure(10, 0.5), time.Hour},
		"millionth failure":           {afterFailure(1e6, 0.5), time.Hour},
		"unauthorized, new, soonest":  {afterUnauthorized(0, time.Hour, 0), time.Minute},
		"unauthorized, new, latest":   {afterUnauthorized(59*time.Minute, time.Hour, 1), 5 * time.Minute},
		"unauthorized after an hour":  {afterUnauthorized(time.Hour, 2*time.Hour, 0.5), 6 * time.Hour},
		"unauthorized, old":           {afterUnauthorized(0, 90*24*time.Hour, 0.5), 6 * time.Hour},
		"one certificate starts soon": {firstDelay(1, 1), 20 * time.Millisecond},
		"a thousand take a while":     {firstDelay(1000, 1), 20 * time.Second},
		"a million not for ever":      {firstDelay(1e6, 1), time.Minute},
	}
	for name, test := range tests {
		if test.got != test.want {
			t.Errorf("%s: %v; want %v", name, test.got, test.want)
		}
	}
}

func TestGetURL(t *testing.T) {
	request := []byte{0xfb, 0xff, 0xfe, 0xff, 0x00}
	want := "http://o.test/%2B%2F%2F%2B%2FwA%3D"
	for _, base := range []string{"http://o.test", "http://o.test/"} {
		if got := getURL(base, request); got != want {
			t.Errorf("getURL(%q) = %q; want %q", base, got, want)
		}
	}
	u, err := url.Parse(want)
	if err != nil {
		t.Fatal(err)
	}
	if u.EscapedPath() != "/%2B%2F%2F%2B%2FwA%3D" {
		t.Errorf("the escaped path becomes %q", u.EscapedPath())
	}
	if got := getURL("http://o.test/?ca=1", request); got != "" {
		t.Errorf("with a query: %q; want POST", got)
	}
	// 255 bytes is the limit for the whole URL.
	fixed := len(getURL("http://o.test/", request))
	for n, want := range map[int]bool{maxGET: true, maxGET + 1: false} {
		base := "http://o.test/" + strings.Repeat("x", n-fixed-1) + "/"
		if got := getURL(base, request); (got != "") != want || want && len(got) != n {
			t.Errorf("URL of %d bytes: %q", n, got)
		}
	}
}

// methods records the methods of requests.
type methods struct {
	seen []string
	get  http.Handler
	post http.Handler
}

func (m *methods) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	m.seen = append(m.seen, r.Method)
	if r.Method == http.MethodGet {
		m.get.ServeHTTP(w, r)
		return
	}
	m.post.ServeHTTP(w, r)
}

func TestGetIsRepeatedByPost(t *testing.T) {
	ca := newCA(t, pki.CAOptions{})
	good := pki.NewResponder(ca, pki.ResponderOptions{})
	cert := serverCert(t, ca, "a.test")
	stale := goodSpec(ca, cert.Leaf, time.Now().Add(-24*time.Hour))
	tests := map[string]struct {
		get  http.Handler
		want []string
	}{
		"good":          {good, []string{"GET", "GET"}},
		"404":           {failing(404), []string{"GET", "POST", "POST"}},
		"html":          {http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "<html>") }), []string{"GET", "POST", "POST"}},
		"stale":         {answer(t, func() pki.ResponseSpec { return stale }), []string{"GET", "POST", "POST"}},
		"malformed":     {answer(t, func() pki.ResponseSpec { return pki.ResponseSpec{ResponseStatus: 1} }), []string{"GET", "POST", "POST"}},
		"try later":     {answer(t, func() pki.ResponseSpec { return pki.ResponseSpec{ResponseStatus: 3} }), []string{"GET", "GET"}},
		"asks patience": {failing(503, "Retry-After", "600"), []string{"GET", "GET"}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			m := &methods{get: test.get, post: good}
			n := newNetwork()
			n.set("ocsp.test", m)
			f := testFetcher(t, n)
			target, err := endpoints{}.target(cert.Leaf, ca.Certificate)
			if err != nil {
				t.Fatal(err)
			}
			for range 2 {
				_, _ = f.fetch(t.Context(), target, nil)
			}
			if !slices.Equal(m.seen, test.want) {
				t.Errorf("methods = %v; want %v", m.seen, test.want)
			}
		})
	}
}

func testFetcher(t *testing.T, transport http.RoundTripper) *fetcher {
	f := newFetcher(transport, stapleSlots, 5*time.Second)
	f.now, f.log = time.Now, testLogger(t)
	return f
}

func TestRequestsAreWellFormed(t *testing.T) {
	ca := newCA(t, pki.CAOptions{})
	cert := serverCert(t, ca, "a.test")
	target, err := endpoints{}.target(cert.Leaf, ca.Certificate)
	if err != nil {
		t.Fatal(err)
	}
	var got []*http.Request
	var bodies [][]byte
	n := newNetwork()
	n.set("ocsp.test", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		got = append(got, r)
		var body []byte
		if r.Body != nil {
			body, _ = io.ReadAll(r.Body)
		}
		bodies = append(bodies, body)
		w.WriteHeader(http.StatusMethodNotAllowed)
	}))
	_, err = testFetcher(t, n).fetch(t.Context(), target, nil)
	if ReasonOf(err) != ReasonHTTPStatus || !strings.Contains(err.Error(), "405") || !strings.Contains(err.Error(), responderURL) {
		t.Errorf("error = %v; want one with the URL and the status", err)
	}
	if len(got) != 2 {
		t.Fatalf("%d requests; want GET and POST", len(got))
	}
	encoded, err := url.PathUnescape(strings.TrimPrefix(got[0].URL.EscapedPath(), "/"))
	if err != nil {
		t.Fatal(err)
	}
	der, err := base64.StdEncoding.DecodeString(encoded)
	if err != nil || !bytes.Equal(der, target.request) || !bytes.Equal(bodies[1], target.request) {
		t.Error("the request is not what arrived")
	}
	if got[1].Header.Get("Content-Type") != "application/ocsp-request" || got[0].Header.Get("Accept-Encoding") != "" {
		t.Errorf("headers = %v", got[1].Header)
	}
}

func TestURLsInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ca := newCA(t, pki.CAOptions{})
		cert := issue(t, ca, pki.Request{Names: []string{"a.test"}, OCSPServers: []string{
			"ldap://never.test/", "http://old.test/", "http://down.test/", "http://dunno.test", "https://up.test/", "http://after.test",
		}})
		r := start(t, Options{Overrides: map[string]string{"http://old.test/": "http://new.test/"}})
		defer r.stop(t)
		r.net.set("new.test", failing(500))
		dunno := pki.NewResponder(ca, pki.ResponderOptions{Default: pki.Unknown})
		r.net.set("dunno.test", dunno)
		r.net.set("up.test", pki.NewResponder(ca, pki.ResponderOptions{}))
		r.net.set("after.test", pki.NewResponder(ca, pki.ResponderOptions{}))
		r.prepare(t, cert)
		advance(time.Second)
		if r.served(t, cert) == nil {
			t.Fatal("not stapled by the responder that works")
		}
		for host, want := range map[string]bool{"never.test": false, "old.test": false, "new.test": true, "down.test": true, "dunno.test": true, "up.test": true, "after.test": false} {
			if got := len(r.net.requests(host)) > 0; got != want {
				t.Errorf("%s asked = %v; want %v", host, got, want)
			}
		}
		if got := r.statusOf(t, "a.test").Responders; len(got) != 5 || got[0] != "http://new.test/" {
			t.Errorf("responders = %v", got)
		}
	})
}

func TestBackOffAndRetryAfter(t *testing.T) {
	gaps := func(times []time.Time) []time.Duration {
		var d []time.Duration
		for i := 1; i < len(times); i++ {
			if gap := times[i].Sub(times[i-1]).Round(time.Second); gap > 0 { // GET and its POST are one attempt
				d = append(d, gap)
			}
		}
		return d
	}
	tests := map[string]struct {
		handler http.Handler
		age     time.Duration
		want    []time.Duration
	}{
		"404":         {failing(404), time.Hour, []time.Duration{time.Minute, 2 * time.Minute, 4 * time.Minute, 8 * time.Minute, 16 * time.Minute, 32 * time.Minute, time.Hour, time.Hour}},
		"retry after": {failing(404, "Retry-After", "600"), time.Hour, []time.Duration{10 * time.Minute, 10 * time.Minute}},
		"retry after, a date": {http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Retry-After", time.Now().Add(20*time.Minute).UTC().Format(http.TimeFormat))
			w.WriteHeader(http.StatusServiceUnavailable)
		}), time.Hour, []time.Duration{20 * time.Minute, 20 * time.Minute}},
		"retry after, absurd":   {failing(404, "Retry-After", "2000000000"), time.Hour, []time.Duration{24 * time.Hour}},
		"retry after, nonsense": {failing(404, "Retry-After", "soon"), time.Hour, []time.Duration{time.Minute, 2 * time.Minute}},
		"retry after, sooner":   {failing(404, "Retry-After", "1"), time.Hour, []time.Duration{time.Minute, 2 * time.Minute}},
		"unauthorized, new":     {answer(t, func() pki.ResponseSpec { return pki.ResponseSpec{ResponseStatus: 6} }), time.Hour, slices.Concat(slices.Repeat([]time.Duration{3 * time.Minute}, 20), []time.Duration{6 * time.Hour, 6 * time.Hour})},
		"unauthorized, old":     {answer(t, func() pki.ResponseSpec { return pki.ResponseSpec{ResponseStatus: 6} }), 50 * time.Hour, []time.Duration{6 * time.Hour, 6 * time.Hour}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ca := newCA(t, pki.CAOptions{NotBefore: time.Now().Add(-1000 * time.Hour)})
				cert := issue(t, ca, pki.Request{Names: []string{"a.test"}, OCSPServers: []string{responderURL}, NotBefore: time.Now().Add(-test.age)})
				r := start(t, Options{})
				defer r.stop(t)
				r.net.set("ocsp.test", test.handler)
				r.prepare(t, cert)
				for len(gaps(r.net.requests("ocsp.test"))) < len(test.want) {
					advance(30 * time.Second)
				}
				if got := gaps(r.net.requests("ocsp.test")); !slices.Equal(got, test.want) {
					t.Errorf("gaps = %v\nwant %v", got, test.want)
				}
			})
		})
	}
}

// A thousand certificates, three responders, one of which never answers: the
// other two's are stapled as if nothing were wrong.
func TestOneStuckResponderAmongThree(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const count = 999
		ca := newCA(t, pki.CAOptions{})
		key, err := pki.GenerateKey(pki.ECDSAP256)
		if err != nil {
			t.Fatal(err)
		}
		r := start(t, Options{})
		defer r.stop(t)
		r.random = newRandom()
		works := pki.NewResponder(ca, pki.ResponderOptions{Validity: 24 * time.Hour})
		busy := &concurrency{next: works}
		r.net.set("one.test", busy)
		r.net.set("two.test", busy)
		stuck := &concurrency{next: silent}
		r.net.set("stuck.test", stuck)
		hosts := []string{"one.test", "two.test", "stuck.test"}
		certs := make([]*tls.Certificate, count)
		begin := time.Now()
		for i := range certs {
			certs[i] = issue(t, ca, pki.Request{
				Names: []string{fmt.Sprintf("c%d.test", i)}, Key: key, OCSPServers: []string{"http://" + hosts[i%3]},
			})
			r.prepare(t, certs[i])
		}
		if waited := time.Since(begin); waited != 0 {
			t.Errorf("preparing took %v", waited)
		}
		advance(25 * time.Second)
		for i, c := range certs {
			if got, want := r.served(t, c) != nil, i%3 != 2; got != want {
				t.Fatalf("certificate %d of %s after %v: stapled %v; want %v", i, hosts[i%3], time.Since(begin), got, want)
			}
		}
		times := r.net.requests("one.test")
		if spread := times[len(times)-1].Sub(times[0]); spread < 5*time.Second {
			t.Errorf("the first requests came within %v: not spread", spread)
		}
		if got := stuck.most.Load(); got > stapleSlots {
			t.Errorf("%d requests at a time at the stuck responder; want %d at most", got, stapleSlots)
		}
		advance(time.Hour)
		// The breaker keeps an hour's requests for 333 certificates few.
		if got := len(r.net.requests("stuck.test")); got < 10 || got > 60 {
			t.Errorf("%d requests at the stuck responder in an hour", got)
		}
		if st := r.Stats(); st.Fetches[ReasonBreakerOpen] == 0 || st.Fetches[ReasonTimeout] == 0 || st.Fetches[ResultGood] < 666 {
			t.Errorf("fetches = %v", st.Fetches)
		}
		// It recovers, and everybody gets their staple.
		r.net.set("stuck.test", works)
		advance(75 * time.Minute)
		if st := r.Stats(); st.Stapled != count {
			t.Errorf("%d of %d stapled after it recovered", st.Stapled, count)
		}
	})
}

// concurrency counts how many requests a handler works on at a time.
type concurrency struct {
	next      http.Handler
	now, most atomic.Int64
}

func (c *concurrency) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	n := c.now.Add(1)
	defer c.now.Add(-1)
	for {
		most := c.most.Load()
		if n <= most || c.most.CompareAndSwap(most, n) {
			break
		}
	}
	c.next.ServeHTTP(w, r)
}

// newRandom returns a source that is the same in every run.
func newRandom() func() float64 {
	var state atomic.Uint64
	return func() float64 {
		x := state.Add(0x9e3779b97f4a7c15)
		x ^= x >> 30
		x *= 0xbf58476d1ce4e5b9
		x ^= x >> 27
		return float64(x>>11) / (1 << 53)
	}
}

func TestUnchangedResponseIsNoFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ca := newCA(t, pki.CAOptions{})
		cert := serverCert(t, ca, "a.test")
		fixed := build(t, goodSpec(ca, cert.Leaf, time.Now()))
		r := start(t, Options{})
		defer r.stop(t)
		r.net.set("ocsp.test", http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(fixed) }))
		r.prepare(t, cert)
		advance(50 * time.Minute)
		got := r.statusOf(t, "a.test")
		if got.Failures != 0 || got.LastResult != ResultGood || got.State != StateGood {
			t.Errorf("status = %+v", got)
		}
		if n := len(r.net.requests("ocsp.test")); n < 3 || n > 12 {
			t.Errorf("%d requests; want one at each half of what was left", n)
		}
	})
}

func TestOlderThanHeldIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ca := newCA(t, pki.CAOptions{})
		cert := serverCert(t, ca, "a.test")
		begin := time.Now()
		var shift atomic.Int64
		r := start(t, Options{})
		defer r.stop(t)
		r.net.set("ocsp.test", answer(t, func() pki.ResponseSpec { return goodSpec(ca, cert.Leaf, begin.Add(time.Duration(shift.Load()))) }))
		r.prepare(t, cert)
		advance(time.Second)
		held := r.served(t, cert)
		shift.Store(int64(-10 * time.Minute))
		advance(40 * time.Minute)
		if string(r.served(t, cert)) != string(held) {
			t.Error("an older response replaced a newer one")
		}
		if got := r.statusOf(t, "a.test"); got.LastResult != ReasonOlder {
			t.Errorf("last result = %s (%s); want %s", got.LastResult, got.LastError, ReasonOlder)
		}
	})
}

func TestShortValidities(t *testing.T) {
	for _, validity := range []time.Duration{2 * time.Minute, 10 * time.Minute, -1} {
		synctest.Test(t, func(t *testing.T) {
			ca := newCA(t, pki.CAOptions{})
			cert := serverCert(t, ca, "a.test")
			r := start(t, Options{})
			defer r.stop(t)
			r.net.set("ocsp.test", pki.NewResponder(ca, pki.ResponderOptions{Validity: validity}))
			r.prepare(t, cert)
			advance(time.Second)
			for range 120 {
				if r.served(t, cert) == nil {
					t.Fatalf("validity %v: not stapled at %v", validity, time.Now())
				}
				advance(30 * time.Second)
			}
		})
	}
}
