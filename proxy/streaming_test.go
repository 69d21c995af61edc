package proxy

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/http/httptrace"
	"net/netip"
	"net/textproto"
	"slices"
	"strings"
	"testing"
	"time"
)

// Every event arrives before the next one is made.
func TestServerSentEvents(t *testing.T) {
	eachProtocol(t, func(t *testing.T, proto string) {
		next := make(chan struct{})
		up := backend(t, func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "text/event-stream")
			for i := range 5 {
				fmt.Fprintf(w, "data: %d\n\n", i)
				http.NewResponseController(w).Flush()
				select {
				case <-next:
				case <-r.Context().Done():
					return
				}
			}
		})
		r := startRig(t, proto, up, nil)
		res, err := r.client.Do(r.request("GET", "/", nil))
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		br := bufio.NewReader(res.Body)
		for i := range 5 {
			line, err := br.ReadString('\n')
			if want := fmt.Sprintf("data: %d\n", i); line != want || err != nil {
				t.Fatalf("event %d: got %q, %v", i, line, err)
			}
			br.ReadString('\n')
			next <- struct{}{}
		}
		if _, err := br.ReadByte(); err != io.EOF {
			t.Errorf("after the last event: %v, want EOF", err)
		}
	})
}

// Headers are not held back until there is a body.
func TestHeadersBeforeBody(t *testing.T) {
	eachProtocol(t, func(t *testing.T, proto string) {
		release := make(chan struct{})
		up := backend(t, func(w http.ResponseWriter, r *http.Request) {
			http.NewResponseController(w).Flush()
			<-release
			io.WriteString(w, "late")
		})
		r := startRig(t, proto, up, nil)
		res, err := r.client.Do(r.request("GET", "/", nil))
		close(release)
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		if body, err := io.ReadAll(res.Body); string(body) != "late" || err != nil {
			t.Errorf("got %q, %v", body, err)
		}
	})
}

func TestResponseTrailers(t *testing.T) {
	for _, backendProto := range []string{"http", "h2c"} {
		eachProtocol(t, func(t *testing.T, proto string) {
			handler := func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Trailer", "X-Announced")
				io.WriteString(w, "body")
				w.Header().Set("X-Announced", "1")
				w.Header().Set(http.TrailerPrefix+"X-Unannounced", "2")
			}
			up := backend(t, handler)
			if backendProto == "h2c" {
				up = poolOf(t, startH2C(t, http.HandlerFunc(handler)))
			}
			r := startRig(t, proto, up, nil)
			res, body := r.get("/")
			if body != "body" {
				t.Errorf("body %q", body)
			}
			if a, u := res.Trailer.Get("X-Announced"), res.Trailer.Get("X-Unannounced"); a != "1" || u != "2" {
				t.Errorf("trailers of a %s backend: announced %q, unannounced %q; want 1 and 2", backendProto, a, u)
			}
		})
	}
}

// startH2C starts a backend that speaks HTTP/2 without TLS and returns its URL.
func startH2C(t *testing.T, h http.Handler) string {
	t.Helper()
	srv := newH2CServer(h)
	srv.Start()
	t.Cleanup(srv.Close)
	return strings.Replace(srv.URL, "http:", "h2c:", 1)
}

// Backends may take a trailer field for a header, so what a client may not say in a
// header it may not say in a trailer, announced or not.
func TestRequestTrailersAreCleaned(t *testing.T) {
	forged := []string{
		"Client-Cert", "Client_Cert", "Client-Cert-Chain", "X-Subject", "X-Forwarded-For", "X-Forwarded-User", "X_Forwarded_Proto", "Forwarded",
		"X-Real-Ip", "X-Request-Id", "X-Env", "X-Gone",
	}
	for _, backendProto := range []string{"http", "h2c"} {
		eachProtocol(t, func(t *testing.T, proto string) {
			got := make(chan http.Header, 1)
			handler := func(w http.ResponseWriter, r *http.Request) {
				announced := slices.Sorted(maps.Keys(r.Trailer))
				io.Copy(io.Discard, r.Body)
				all := r.Trailer.Clone()
				for _, name := range announced {
					all.Add("Announced", name)
				}
				got <- all
			}
			up := backend(t, handler)
			if backendProto == "h2c" {
				up = poolOf(t, startH2C(t, http.HandlerFunc(handler)))
			}
			r := startRig(t, proto, up, func(o *Options) {
				o.TrustedProxies = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("::1/128")}
				o.Sites[0].Identity = Identity{Cert: true, Subject: "X-Subject"}
				o.Sites[0].Request = HeaderRules{Set: map[string]string{"X-Env": "prod"}, Remove: []string{"X-Gone"}}
			})
			req := r.request("POST", "/", nil)
			req.Trailer = http.Header{"X-Sum": nil}
			for _, name := range forged {
				req.Trailer[name] = nil
			}
			req.Body = io.NopCloser(io.MultiReader(strings.NewReader("body"), readerFunc(func([]byte) (int, error) {
				for name := range req.Trailer {
					req.Trailer[name] = []string{"42"}
				}
				return 0, io.EOF
			})))
			req.ContentLength = -1
			r.do(req)
			if trailer := <-got; len(trailer) != 2 || trailer.Get("X-Sum") != "42" || !slices.Equal(trailer["Announced"], []string{"X-Sum"}) {
				t.Errorf("a %s backend got the trailer %v; want X-Sum alone", backendProto, trailer)
			}
		})
	}
	// HTTP/1.1 lets a client send what it has not announced.
	got := make(chan http.Header, 1)
	up := backend(t, func(w http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		got <- r.Trailer
	})
	r := startRig(t, h1, up, nil)
	body := "POST / HTTP/1.1\r\nHost: app.test\r\nTransfer-Encoding: chunked\r\nTrailer: X-Sum\r\n\r\n4\r\nbody\r\n0\r\nX-Sum: 42\r\n"
	for _, name := range append(forged[:3:3], "Content-Length", "Host", "Connection", "Upgrade", "Te", "Keep-Alive") {
		body += name + ": 42\r\n"
	}
	if status, _ := r.raw(body + "\r\n"); status != 200 {
		t.Errorf("status %d", status)
	}
	if trailer := <-got; len(trailer) != 1 || trailer.Get("X-Sum") != "42" {
		t.Errorf("the backend got the trailer %v; want X-Sum alone", trailer)
	}
}

func TestRequestTrailers(t *testing.T) {
	eachProtocol(t, func(t *testing.T, proto string) {
		up := backend(t, func(w http.ResponseWriter, r *http.Request) {
			io.Copy(io.Discard, r.Body)
			io.WriteString(w, r.Trailer.Get("X-Sum"))
		})
		r := startRig(t, proto, up, nil)
		req := r.request("POST", "/", nil)
		req.Trailer = http.Header{"X-Sum": nil}
		req.Body = io.NopCloser(io.MultiReader(strings.NewReader("body"), readerFunc(func([]byte) (int, error) {
			req.Trailer.Set("X-Sum", "42")
			return 0, io.EOF
		})))
		req.ContentLength = -1
		if _, body := r.do(req); body != "42" {
			t.Errorf("the backend got the trailer %q, want 42", body)
		}
	})
}

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

// Early hints arrive while the backend is still busy.
func TestInformationalResponses(t *testing.T) {
	eachProtocol(t, func(t *testing.T, proto string) {
		hinted := make(chan struct{})
		up := backend(t, func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Link", "</style.css>; rel=preload")
			w.WriteHeader(http.StatusEarlyHints)
			w.Header().Del("Link")
			<-hinted
			io.WriteString(w, "done")
		})
		r := startRig(t, proto, up, nil)
		var got []string
		ctx := httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{
			Got1xxResponse: func(code int, h textproto.MIMEHeader) error {
				got = append(got, fmt.Sprint(code, " ", h.Get("Link")))
				close(hinted)
				return nil
			},
		})
		res, body := r.do(r.request("GET", "/", nil).WithContext(ctx))
		if body != "done" || res.Header.Get("Link") != "" {
			t.Errorf("got %q, Link %q", body, res.Header.Get("Link"))
		}
		if len(got) != 1 || got[0] != "103 </style.css>; rel=preload" {
			t.Errorf("informational responses: %q", got)
		}
		if rec := r.record(); rec.Status != 200 {
			t.Errorf("recorded status %d, want 200", rec.Status)
		}
	})
}

// The client sends its body only after the backend has agreed. Over HTTP/2 net/http
// hides the expectation from handlers, and the proxy agrees by itself.
func TestExpectContinue(t *testing.T) {
	eachProtocol(t, func(t *testing.T, proto string) {
		up := backend(t, func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/refuse" {
				w.WriteHeader(http.StatusExpectationFailed)
				return
			}
			io.Copy(w, r.Body)
		})
		r := startRig(t, proto, up, nil)
		read := false
		send := func(path string) (int, string) {
			read = false
			req := r.request("POST", path, readerFunc(func(p []byte) (int, error) {
				read = true
				return 0, io.EOF
			}))
			req.Header.Set("Expect", "100-continue")
			res, body := r.do(req)
			return res.StatusCode, body
		}
		if status, _ := send("/accept"); status != 200 || !read {
			t.Errorf("accepted: status %d, body sent %t", status, read)
		}
		if status, _ := send("/refuse"); status != 417 || read && proto == h1 {
			t.Errorf("refused: status %d, body sent %t", status, read)
		}
		// The connection to the backend is still in step.
		if status, _ := send("/accept"); status != 200 {
			t.Errorf("afterwards: status %d", status)
		}
	})
}

func TestLargeBodies(t *testing.T) {
	const size = 4 << 20
	data := make([]byte, size)
	chacha := rand.NewChaCha8([32]byte{1})
	chacha.Read(data)
	sum := sha256.Sum256(data)
	eachProtocol(t, func(t *testing.T, proto string) {
		up := backend(t, func(w http.ResponseWriter, r *http.Request) {
			h := sha256.New()
			n, err := io.Copy(h, r.Body)
			w.Header().Set("X-Sum", fmt.Sprintf("%x %d %v", h.Sum(nil), n, err))
			w.Write(data)
		})
		r := startRig(t, proto, up, nil)
		for _, length := range []int64{size, -1} {
			req := r.request("POST", "/", bytes.NewReader(data))
			req.ContentLength = length
			res, body := r.do(req)
			if want := hex.EncodeToString(sum[:]) + " 4194304 <nil>"; res.Header.Get("X-Sum") != want {
				t.Errorf("the backend got %q", res.Header.Get("X-Sum"))
			}
			if got := sha256.Sum256([]byte(body)); got != sum {
				t.Errorf("the client got %d other bytes", len(body))
			}
			rec := r.record()
			if rec.BytesIn != size || rec.BytesOut != size {
				t.Errorf("recorded %d in, %d out; want %d", rec.BytesIn, rec.BytesOut, size)
			}
		}
	})
}

// Backends may answer while the request is still coming in.
func TestFullDuplex(t *testing.T) {
	eachProtocol(t, func(t *testing.T, proto string) {
		up := backend(t, func(w http.ResponseWriter, r *http.Request) {
			rc := http.NewResponseController(w)
			rc.EnableFullDuplex()
			rc.Flush()
			br := bufio.NewReader(r.Body)
			for {
				line, err := br.ReadString('\n')
				if err != nil {
					return
				}
				io.WriteString(w, line)
				rc.Flush()
			}
		})
		r := startRig(t, proto, up, nil)
		pr, pw := io.Pipe()
		res, err := r.client.Do(r.request("POST", "/", pr))
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		br := bufio.NewReader(res.Body)
		for i := range 3 {
			fmt.Fprintf(pw, "%d\n", i)
			if line, err := br.ReadString('\n'); line != fmt.Sprintf("%d\n", i) {
				t.Fatalf("echo %d: %q, %v", i, line, err)
			}
		}
		pw.Close()
		if _, err := br.ReadByte(); err != io.EOF {
			t.Errorf("at the end: %v, want EOF", err)
		}
	})
}

// A response that a backend cuts short must not look complete.
func TestTruncatedResponse(t *testing.T) {
	eachProtocol(t, func(t *testing.T, proto string) {
		up := backend(t, func(w http.ResponseWriter, r *http.Request) {
			io.WriteString(w, "half")
			http.NewResponseController(w).Flush()
			panic(http.ErrAbortHandler)
		})
		r := startRig(t, proto, up, nil)
		res, err := r.client.Do(r.request("GET", "/", nil))
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		if body, err := io.ReadAll(res.Body); err == nil {
			t.Errorf("got %q and no error", body)
		}
		if rec := r.record(); !rec.Aborted || rec.Err == nil || rec.Status != 200 || rec.BytesOut != 4 {
			t.Errorf("recorded %+v", rec)
		}
	})
}

// A client that goes away takes its request to the backend along.
func TestClientGone(t *testing.T) {
	eachProtocol(t, func(t *testing.T, proto string) {
		arrived, gone := make(chan struct{}), make(chan struct{})
		up := backend(t, func(w http.ResponseWriter, r *http.Request) {
			close(arrived)
			<-r.Context().Done()
			close(gone)
		})
		r := startRig(t, proto, up, nil)
		ctx, cancel := context.WithCancel(t.Context())
		go func() {
			<-arrived
			cancel()
		}()
		if _, err := r.client.Do(r.request("GET", "/", nil).WithContext(ctx)); !errors.Is(err, context.Canceled) {
			t.Errorf("got %v", err)
		}
		select {
		case <-gone:
		case <-time.After(10 * time.Second):
			t.Fatal("the backend was not told")
		}
		if rec := r.record(); rec.Status != StatusClientClosed {
			t.Errorf("recorded status %d, want 499", rec.Status)
		}
	})
}

func TestBodyLimit(t *testing.T) {
	eachProtocol(t, func(t *testing.T, proto string) {
		up := backend(t, func(w http.ResponseWriter, r *http.Request) {
			n, err := io.Copy(io.Discard, r.Body)
			fmt.Fprint(w, n, err)
		})
		r := startRig(t, proto, up, func(o *Options) {
			o.MaxBodyBytes = 1000
			o.Sites[0].Routes = append(o.Sites[0].Routes,
				Route{Path: "/big", Upstream: up, MaxBodyBytes: 5000},
				Route{Path: "/any", Upstream: up, MaxBodyBytes: -1})
		})
		tests := []struct {
			path   string
			size   int
			length bool
			want   int
		}{
			{"/", 1000, true, 200}, {"/", 1001, true, 413}, {"/", 1000, false, 200}, {"/", 1001, false, 413},
			{"/big", 5000, true, 200}, {"/big", 5001, false, 413}, {"/any", 100_000, false, 200},
		}
		for _, tt := range tests {
			req := r.request("POST", tt.path, strings.NewReader(strings.Repeat("x", tt.size)))
			if !tt.length {
				req.ContentLength = -1
			}
			res, body := r.do(req)
			if res.StatusCode != tt.want {
				t.Errorf("%s, %d bytes, length %t: status %d, want %d: %s", tt.path, tt.size, tt.length, res.StatusCode, tt.want, body)
			}
		}
	})
}
