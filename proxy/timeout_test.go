package proxy

import (
	"bufio"
	"errors"
	"io"
	"net/http"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// roundTripFunc is an upstream without a network.
type roundTripFunc func(*http.Request) (*http.Response, error)

func (f roundTripFunc) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// readAllUpstream is an upstream that reads the whole body and says how much it was.
func readAllUpstream(r *http.Request) (*http.Response, error) {
	if r.Body != nil {
		if _, err := io.Copy(io.Discard, r.Body); err != nil {
			return nil, err
		}
	}
	return &http.Response{StatusCode: 204, ProtoMajor: 1, ProtoMinor: 1, Request: r, Header: http.Header{}, Body: http.NoBody}, nil
}

func TestReadTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := startMem(t, roundTripFunc(readAllUpstream), func(o *Options) { o.ReadTimeout = 10 * time.Second })
		defer r.stop()
		c := r.dial(t)
		defer c.Close()
		io.WriteString(c, "POST / HTTP/1.1\r\nHost: app.test\r\nContent-Length: 10\r\n\r\n")
		for range 5 { // slow, but never silent for too long
			time.Sleep(8 * time.Second)
			io.WriteString(c, "x")
		}
		start := time.Now()
		res, err := http.ReadResponse(bufio.NewReader(c), nil)
		if err != nil {
			t.Fatal(err)
		}
		if res.StatusCode != http.StatusRequestTimeout || time.Since(start) > 10*time.Second || time.Since(start) < 8*time.Second {
			t.Errorf("status %d after %v, want 408 after about 10s", res.StatusCode, time.Since(start))
		}
		if rec := <-r.records; !errors.Is(rec.Err, os.ErrDeadlineExceeded) || rec.BytesIn != 5 {
			t.Errorf("recorded %+v", rec)
		}
	})
}

// After the body, waiting for the backend does not count.
func TestReadTimeoutEndsWithTheBody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slow := roundTripFunc(func(r *http.Request) (*http.Response, error) {
			if r.Body == nil {
				return readAllUpstream(r)
			}
			io.Copy(io.Discard, r.Body)
			select {
			case <-time.After(5 * time.Minute):
			case <-r.Context().Done():
				return nil, r.Context().Err()
			}
			return readAllUpstream(r)
		})
		r := startMem(t, slow, func(o *Options) { o.ReadTimeout = 10 * time.Second })
		defer r.stop()
		c := r.dial(t)
		defer c.Close()
		io.WriteString(c, "POST / HTTP/1.1\r\nHost: app.test\r\nContent-Length: 4\r\n\r\nbody")
		br := bufio.NewReader(c)
		if res, err := http.ReadResponse(br, nil); err != nil || res.StatusCode != 204 {
			t.Fatalf("got %v, %v", res, err)
		}
		// The connection lives on without a deadline from before.
		time.Sleep(time.Hour)
		io.WriteString(c, "GET / HTTP/1.1\r\nHost: app.test\r\n\r\n")
		if res, err := http.ReadResponse(br, nil); err != nil || res.StatusCode != 204 {
			t.Fatalf("an hour later: %v, %v", res, err)
		}
	})
}

// A client that does not read is cut off; one that reads slowly is not.
func TestWriteTimeout(t *testing.T) {
	const size = 4 << 20
	large := roundTripFunc(func(r *http.Request) (*http.Response, error) {
		return &http.Response{
			StatusCode: 200, ProtoMajor: 1, ProtoMinor: 1, Request: r, Header: http.Header{}, ContentLength: size,
			Body: io.NopCloser(io.LimitReader(zeros{}, size)),
		}, nil
	})
	for _, reads := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			r := startMem(t, large, func(o *Options) { o.WriteTimeout = 10 * time.Second })
			defer r.stop()
			c := r.dial(t)
			defer c.Close()
			start := time.Now()
			io.WriteString(c, "GET / HTTP/1.1\r\nHost: app.test\r\n\r\n")
			total := 0
			for buf := make([]byte, 64<<10); reads && total < size; {
				time.Sleep(5 * time.Second)
				n, err := c.Read(buf)
				total += n
				if err != nil {
					t.Fatalf("slow client after %d bytes: %v", total, err)
				}
			}
			rec := <-r.records
			if rec.Aborted == reads {
				t.Errorf("client reads: %t, aborted: %t after %v", reads, rec.Aborted, rec.Duration)
			}
			if !reads && time.Since(start) > 11*time.Second {
				t.Errorf("cut off after %v, want about 10s", time.Since(start))
			}
		})
	}
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}

// The server reads what is left of an unwanted body for a bounded time only.
func TestUnwantedBody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		refuse := roundTripFunc(func(r *http.Request) (*http.Response, error) { return nil, errors.New("no") })
		r := startMem(t, refuse, func(o *Options) {})
		defer r.stop()
		c := r.dial(t)
		defer c.Close()
		start := time.Now()
		io.WriteString(c, "POST / HTTP/1.1\r\nHost: app.test\r\nContent-Length: 100000\r\n\r\nsome")
		time.AfterFunc(8*time.Second, func() { // too late to be the body, and not to be taken for a request
			io.WriteString(c, "GET /smuggled HTTP/1.1\r\nHost: app.test\r\n\r\n")
		})
		got, err := io.ReadAll(c)
		if err != nil || !strings.HasPrefix(string(got), "HTTP/1.1 502 ") || !strings.Contains(string(got), "\r\nConnection: close\r\n") {
			t.Errorf("got %.100q, %v", got, err)
		}
		if n := len(r.records); n != 1 {
			t.Errorf("%d requests recorded, want 1", n)
		}
		if d := time.Since(start); d > 10*time.Second {
			t.Errorf("the connection was held for %v", d)
		}
	})
}

// The same when the response is complete before the client has sent everything.
func TestUnwantedBodyOfAnsweredRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		early := roundTripFunc(func(r *http.Request) (*http.Response, error) {
			return &http.Response{
				StatusCode: 200, ProtoMajor: 1, ProtoMinor: 1, Request: r, Header: http.Header{}, ContentLength: 2,
				Body: io.NopCloser(strings.NewReader("ok")),
			}, nil
		})
		r := startMem(t, early, func(o *Options) {})
		defer r.stop()
		c := r.dial(t)
		defer c.Close()
		io.WriteString(c, "POST / HTTP/1.1\r\nHost: app.test\r\nContent-Length: 1000\r\n\r\nsome")
		time.AfterFunc(8*time.Second, func() {
			io.WriteString(c, "GET /smuggled HTTP/1.1\r\nHost: app.test\r\n\r\n")
		})
		got, err := io.ReadAll(c)
		if err != nil || !strings.HasPrefix(string(got), "HTTP/1.1 200 ") || !strings.HasSuffix(string(got), "\r\n\r\nok") {
			t.Errorf("got %.100q, %v", got, err)
		}
		if n := len(r.records); n != 1 {
			t.Errorf("%d requests recorded, want 1", n)
		}
	})
}
