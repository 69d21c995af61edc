package proxy

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// bodyUpstream answers with size zeros after a second, without a length if
// chunked, and tells when its body is closed. In the second httputil flushes the
// header, in a goroutine that else might wait for a mutex, which stops the clock.
func bodyUpstream(size int64, chunked bool, closed *bool) roundTripFunc {
	return func(r *http.Request) (*http.Response, error) {
		res := &http.Response{
			StatusCode: 200, ProtoMajor: 1, ProtoMinor: 1, Request: r, Header: http.Header{}, ContentLength: size,
			Body: closeNoter{io.MultiReader(laterEOF{}, io.LimitReader(zeros{}, size)), closed},
		}
		if chunked {
			res.ContentLength = -1
		}
		return res, nil
	}
}

// laterEOF ends after a second.
type laterEOF struct{}

func (laterEOF) Read([]byte) (int, error) {
	time.Sleep(time.Second)
	return 0, io.EOF
}

type closeNoter struct {
	io.Reader
	closed *bool
}

func (c closeNoter) Close() error { *c.closed = true; return nil }

// rawH2 is an HTTP/2 client that sends what it is told to.
type rawH2 struct {
	t *testing.T
	*http2.Framer
}

// openH2 begins a connection whose streams have a window of so many bytes.
func openH2(t *testing.T, c net.Conn, window uint32) rawH2 {
	t.Helper()
	io.WriteString(c, http2.ClientPreface)
	raw := rawH2{t, http2.NewFramer(c, c)}
	if err := raw.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: window}); err != nil {
		t.Fatal(err)
	}
	return raw
}

func (r rawH2) get(stream uint32) {
	r.t.Helper()
	var block bytes.Buffer
	enc := hpack.NewEncoder(&block)
	for _, f := range [][2]string{{":method", "GET"}, {":scheme", "http"}, {":authority", "app.test"}, {":path", "/"}} {
		enc.WriteField(hpack.HeaderField{Name: f[0], Value: f[1]})
	}
	err := r.WriteHeaders(http2.HeadersFrameParam{StreamID: stream, BlockFragment: block.Bytes(), EndStream: true, EndHeaders: true})
	if err != nil {
		r.t.Fatal(err)
	}
}

// A client that opens no window is cut off after the time of one write, and
// its backend let go, whether the handler or the server waits for it.
func TestClosedWindow(t *testing.T) {
	const timeout = 10 * time.Second
	for _, response := range []struct {
		size    int64
		chunked bool
		aborted bool // the handler waits, not the server after it
	}{
		{100, false, false}, {serverBuffer, false, false}, {serverBuffer + 1, false, true}, {4 << 20, false, true},
		{100, true, true}, {4 << 20, true, true},
	} {
		t.Run(fmt.Sprintf("%d bytes, chunked %t", response.size, response.chunked), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var closed bool
				r := startMem(t, bodyUpstream(response.size, response.chunked, &closed), func(o *Options) { o.StreamWriteTimeout = timeout })
				defer r.stop()
				c := r.dial(t)
				defer c.Close()
				client := openH2(t, c, 0)
				start := time.Now()
				client.get(1)
				c.SetReadDeadline(start.Add(time.Hour))
				for reset := false; !reset; {
					frame, err := client.ReadFrame()
					if err != nil {
						t.Fatalf("the stream still waits for its window after %v: %v", time.Since(start), err)
					}
					_, reset = frame.(*http2.RSTStreamFrame)
				}
				if took := time.Since(start); took < timeout || took > timeout+2*time.Second {
					t.Errorf("cut off after %v, want about %v", took, timeout)
				}
				rec := <-r.records
				if rec.Aborted != response.aborted || response.aborted != errors.Is(rec.Err, errStalled) {
					t.Errorf("aborted: %t, %v; want %t", rec.Aborted, rec.Err, response.aborted)
				}
				synctest.Wait()
				if !closed {
					t.Error("the response of the backend is still open")
				}
			})
		})
	}
}

// A client that opens its window slowly gets everything.
func TestSlowWindow(t *testing.T) {
	const size, step = 256 << 10, 8 << 10
	synctest.Test(t, func(t *testing.T) {
		var closed bool
		r := startMem(t, bodyUpstream(size, false, &closed), func(o *Options) { o.StreamWriteTimeout = 30 * time.Second })
		defer r.stop()
		c := r.dial(t)
		defer c.Close()
		client := openH2(t, c, step)
		client.get(1)
		for total := 0; total < size; {
			frame, err := client.ReadFrame()
			if err != nil {
				t.Fatal(err)
			}
			switch f := frame.(type) {
			case *http2.RSTStreamFrame:
				t.Fatalf("reset after %d bytes", total)
			case *http2.DataFrame:
				total += len(f.Data())
				time.Sleep(5 * time.Second)
				client.WriteWindowUpdate(0, uint32(len(f.Data())))
				client.WriteWindowUpdate(1, uint32(len(f.Data())))
			}
		}
		if rec := <-r.records; rec.Aborted || rec.BytesOut != size {
			t.Errorf("recorded %+v", rec)
		}
	})
}

// Streams on which nothing is written, of events and of gRPC, carry no deadline.
func TestQuietStreams(t *testing.T) {
	for _, kind := range []string{"text/event-stream", "application/grpc"} {
		t.Run(kind, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				body, send := io.Pipe()
				up := roundTripFunc(func(r *http.Request) (*http.Response, error) {
					return &http.Response{
						StatusCode: 200, ProtoMajor: 2, Request: r, Body: body, ContentLength: -1,
						Header: http.Header{"Content-Type": {kind}}, Trailer: http.Header{"Grpc-Status": {"0"}},
					}, nil
				})
				r := startMem(t, up, func(o *Options) { o.StreamWriteTimeout = 10 * time.Second })
				defer r.stop()
				client := r.h2Client()
				defer client.CloseIdleConnections()
				res, err := client.Get("http://app.test/")
				if err != nil {
					t.Fatal(err)
				}
				defer res.Body.Close()
				for i := range 5 {
					time.Sleep(time.Hour)
					part := strings.Repeat(fmt.Sprint(i), 1+i*10_000)
					go io.WriteString(send, part)
					got := make([]byte, len(part))
					if _, err := io.ReadFull(res.Body, got); err != nil || string(got) != part {
						t.Fatalf("part %d: %v", i, err)
					}
				}
				time.Sleep(time.Hour)
				send.Close()
				if _, err := io.ReadAll(res.Body); err != nil || res.Trailer.Get("Grpc-Status") != "0" {
					t.Errorf("the end: %v, trailers %v", err, res.Trailer)
				}
				if rec := <-r.records; rec.Aborted {
					t.Errorf("recorded %+v", rec)
				}
			})
		})
	}
}

// h2Client is a client of the rig that speaks HTTP/2 alone.
func (r *memRig) h2Client() *http.Client {
	protocols := new(http.Protocols)
	protocols.SetUnencryptedHTTP2(true)
	return &http.Client{Transport: &http.Transport{
		Protocols:   protocols,
		DialContext: func(context.Context, string, string) (net.Conn, error) { return r.network.Dial("tcp", "192.0.2.1:80") },
	}}
}
