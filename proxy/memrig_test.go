package proxy

import (
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/tlsproxy/tlsproxy/internal/memnet"
)

// memRig is a handler on a network in memory, without TLS, for a fake clock.
type memRig struct {
	network *memnet.Network
	records chan Record
	stop    func()
}

// startMem serves opts in memory; call it in a synctest bubble.
func startMem(t *testing.T, up http.RoundTripper, change func(*Options)) *memRig {
	t.Helper()
	records := make(chan Record, 10)
	opts := Options{
		Sites:    []Site{{Hosts: []string{"app.test"}, Routes: []Route{{Path: "/", Upstream: up}}}},
		Observer: observerFunc(func(rec *Record) { records <- *rec }),
	}
	change(&opts)
	h, err := New(opts)
	if err != nil {
		t.Fatal(err)
	}
	r := serveMem(t, h)
	r.records = records
	return r
}

func serveMem(t *testing.T, h http.Handler) *memRig {
	t.Helper()
	r := &memRig{network: new(memnet.Network)}
	ln, err := r.network.Listen("tcp", "192.0.2.1:80")
	if err != nil {
		t.Fatal(err)
	}
	srv := &http.Server{Handler: h, Protocols: new(http.Protocols)}
	srv.Protocols.SetHTTP1(true)
	srv.Protocols.SetUnencryptedHTTP2(true)
	done := make(chan struct{})
	go func() {
		defer close(done)
		srv.Serve(ln)
	}()
	r.stop = func() {
		srv.Close()
		<-done
		time.Sleep(time.Second) // of the fake clock: the server lingers on refused clients
	}
	return r
}

func (r *memRig) dial(t *testing.T) net.Conn {
	t.Helper()
	c, err := r.network.Dial("tcp", "192.0.2.1:80")
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// switcher is an upstream that switches protocols and hands out its side.
type switcher struct{ peer chan net.Conn }

func (s switcher) RoundTrip(r *http.Request) (*http.Response, error) {
	a, b := memnet.Pipe(&net.TCPAddr{}, &net.TCPAddr{})
	s.peer <- b
	return &http.Response{
		StatusCode: 101, ProtoMajor: 1, ProtoMinor: 1, Request: r, Body: a,
		Header: http.Header{"Connection": {"Upgrade"}, "Upgrade": {r.Header.Get("Upgrade")}},
	}, nil
}
