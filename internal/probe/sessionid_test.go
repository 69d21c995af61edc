package probe

import (
	"bytes"
	"crypto/tls"
	"testing"
)

// helloBytes returns a ClientHello as crypto/tls makes it for TLS 1.2.
func helloBytes(t testing.TB) []byte {
	t.Helper()
	p := newProber(options{target: target{serverName: "a.test"}}, nil)
	msg, err := p.clientHello(hello{version: tls.VersionTLS12, alpn: httpALPN}, bytes.Repeat([]byte{7}, 32))
	if err != nil {
		t.Fatal(err)
	}
	return msg
}

func TestWithSessionID(t *testing.T) {
	original := helloBytes(t)
	for n := range 33 {
		id := bytes.Repeat([]byte{9}, n)
		msg, err := withSessionID(original, id)
		if err != nil {
			t.Fatal(err)
		}
		if len(msg) != len(original)-32+n {
			t.Errorf("%d bytes: length %d", n, len(msg))
		}
		// It is a ClientHello still: a server reads it, with that ID.
		var read *tls.ClientHelloInfo
		server := tls.Server(&scriptedConn{in: bytes.NewReader(msg)}, &tls.Config{
			GetConfigForClient: func(h *tls.ClientHelloInfo) (*tls.Config, error) { read = h; return nil, errCaptured },
		})
		_ = server.Handshake()
		if read == nil || read.ServerName != "a.test" || len(read.CipherSuites) == 0 {
			t.Errorf("%d bytes: a server does not understand the hello", n)
		}
		if got := msg[43]; int(got) != n || !bytes.Equal(msg[44:44+n], id) {
			t.Errorf("%d bytes: ID is %x", n, msg[43:44+n])
		}
	}
	for _, bad := range [][]byte{nil, original[:20], append([]byte{23}, original[1:]...), original[:60]} {
		if _, err := withSessionID(bad, []byte{1}); err == nil {
			t.Errorf("%d bytes are taken for a client hello", len(bad))
		}
	}
	if _, err := withSessionID(original, make([]byte, 33)); err == nil {
		t.Error("an ID of 33 bytes is accepted")
	}
}

// scriptedConn reads what it is given and swallows what is written.
type scriptedConn struct {
	captureConn
	in *bytes.Reader
}

func (c *scriptedConn) Read(b []byte) (int, error)  { return c.in.Read(b) }
func (c *scriptedConn) Write(b []byte) (int, error) { return len(b), nil }

func record(typ byte, body ...byte) []byte {
	return append([]byte{typ, 3, 3, byte(len(body) >> 8), byte(len(body))}, body...)
}

func message(typ byte, body ...byte) []byte {
	return append([]byte{typ, 0, byte(len(body) >> 8), byte(len(body))}, body...)
}

// serverHelloBytes is a ServerHello with the session ID.
func serverHelloBytes(id ...byte) []byte {
	body := append([]byte{3, 3}, make([]byte, 32)...)
	body = append(body, byte(len(id)))
	body = append(body, id...)
	return message(msgServerHello, append(body, 0xc0, 0x2b, 0)...)
}

func TestFlights(t *testing.T) {
	id := []byte{1, 2, 3, 4}
	sh := serverHelloBytes(id...)
	ccs, finished := record(recordChangeCipherSpec, 1), record(recordHandshake, make([]byte, 40)...)
	tests := []struct {
		name        string
		bytes       []byte
		abbreviated bool
		fails       bool
	}{
		{"abbreviated", join(record(22, sh...), ccs, finished), true, false},
		{"abbreviated with a new ticket", join(record(22, sh...), record(22, message(4, 0, 0, 0, 0, 0, 0)...), ccs, finished), true, false},
		{"full", join(record(22, sh...), record(22, message(11, 0, 0, 0)...)), false, false},
		{"full in one record", record(22, append(sh, message(11, 0, 0, 0)...)...), false, false},
		{"hello in two records", join(record(22, sh[:10]...), record(22, sh[10:]...), ccs, finished), true, false},
		{"ends after the hello", record(22, sh...), false, true},
		{"ends before Finished", join(record(22, sh...), ccs), true, true},
		{"alert", join(record(22, sh...), record(21, 2, 40)), false, true},
		{"empty alert", join(record(22, sh...), record(21)), false, true},
		{"application data", join(record(22, sh...), record(23, 0)), false, true},
		{"huge message", join(record(22, sh...), record(22, 11, 0xff, 0xff, 0xff)), false, true},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			f := newFlight(bytes.NewReader(test.bytes))
			first, err := f.serverHello()
			if err != nil || !bytes.Equal(first.sessionID, id) {
				t.Fatalf("server hello %x, %v", first.sessionID, err)
			}
			got, err := f.abbreviated()
			if got != test.abbreviated || (err != nil) != test.fails {
				t.Errorf("abbreviated = %t, %v", got, err)
			}
		})
	}
}

func join(parts ...[]byte) []byte { return bytes.Join(parts, nil) }

func FuzzFlight(f *testing.F) {
	sh := serverHelloBytes(1, 2, 3)
	f.Add(join(record(22, sh...), record(20, 1), record(22, 1, 2, 3)))
	f.Add(record(22, append(sh, message(11, 0, 0, 0)...)...))
	f.Add(record(21, 2, 40))
	f.Add([]byte("HTTP/1.1 400 Bad Request\r\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		flight := newFlight(bytes.NewReader(b))
		first, err := flight.serverHello()
		if err != nil {
			return
		}
		if len(first.sessionID) > len(b) {
			t.Fatalf("session ID of %d bytes out of %d", len(first.sessionID), len(b))
		}
		_, _ = flight.abbreviated()
	})
}

func FuzzWithSessionID(f *testing.F) {
	f.Add(helloBytes(f), []byte{1})
	f.Add([]byte{22, 3, 1}, []byte{})
	f.Fuzz(func(t *testing.T, hello, id []byte) {
		msg, err := withSessionID(hello, id)
		if err == nil && !bytes.Equal(msg[44:44+len(id)], id) {
			t.Fatalf("ID not in place: %x", msg)
		}
	})
}
