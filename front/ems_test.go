package front

import (
	"bytes"
	"crypto/tls"
	"encoding/binary"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tlsproxy/tlsproxy/internal/testtool"
	"github.com/tlsproxy/tlsproxy/session"
)

// A TLS 1.2 session that was made with the extended master secret must not be
// resumed by a hello without it (RFC 7627, section 5.3). crypto/tls ends such
// a handshake with an alert; here it is a full one, as with every session that
// cannot be resumed.
func TestSessionWithEMSOfferedWithout(t *testing.T) {
	r := newRig(t, rigOptions{})
	cache := &anyName{}
	r.mustVisit(r.client("app.example", tls.VersionTLS12, cache))
	cache.hold = true
	raw := r.dial()
	defer raw.Close()
	answer := sayHello(t, raw, withoutEMS(t, catchHello(r.client("app.example", tls.VersionTLS12, cache))))
	if !slices.Contains(answer, typeCertificate) {
		t.Errorf("the server's messages are %v, want a full handshake with its certificate among them", answer)
	}
	raw.Close()
	testtool.Eventually(t, "the handshake to end", func() bool { return len(r.observer.reasons()) == 2 })
	r.observer.mu.Lock()
	defer r.observer.mu.Unlock()
	if got := r.observer.events[1].Session; got != session.Declined {
		t.Errorf("the lookup ended with %q, want %q", got, session.Declined)
	}
}

const (
	typeCertificate     = 11
	typeServerHelloDone = 14
)

// catchHello returns the hello that a client of config would send, in records.
func catchHello(config *tls.Config) []byte {
	nowhere, end := net.Pipe()
	caught := &tap{Conn: nowhere}
	go func() {
		_, _ = end.Read(make([]byte, 8192))
		end.Close()
	}()
	_ = tls.Client(caught, config).Handshake()
	return caught.hello()
}

// withoutEMS takes the extension out of a hello of one record.
func withoutEMS(t *testing.T, hello []byte) []byte {
	t.Helper()
	extension := []byte{0, extendedMasterSecret, 0, 0}
	at := bytes.Index(hello, extension)
	if at < 0 || bytes.Count(hello, extension) != 1 {
		t.Fatalf("the hello has %d extensions that look like it, want 1", bytes.Count(hello, extension))
	}
	out := slices.Concat(hello[:at], hello[at+4:])
	shorten := func(b []byte) { binary.BigEndian.PutUint16(b, binary.BigEndian.Uint16(b)-4) }
	shorten(out[3:]) // the record
	shorten(out[7:]) // the message, whose length has three bytes
	p := 5 + 4 + 2 + 32
	p += 1 + int(out[p])                           // session ID
	p += 2 + int(binary.BigEndian.Uint16(out[p:])) // cipher suites
	p += 1 + int(out[p])                           // compression methods
	shorten(out[p:])                               // the extensions
	if end := p + 2 + int(binary.BigEndian.Uint16(out[p:])); end != len(out) {
		t.Fatalf("the extensions end at %d of %d bytes", end, len(out))
	}
	return out
}

// sayHello sends a hello and returns the types of the handshake messages that
// the server answers with, up to the end of its flight or what is in clear of it.
func sayHello(t *testing.T, c net.Conn, hello []byte) (types []byte) {
	t.Helper()
	if err := c.SetDeadline(time.Now().Add(5 * time.Second)); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Write(hello); err != nil {
		t.Fatal(err)
	}
	var got []byte
	buf := make([]byte, 8192)
	for !slices.Contains(types, typeServerHelloDone) {
		n, err := c.Read(buf)
		if got = append(got, buf[:n]...); err != nil {
			return types
		}
		var end bool
		if types, end = messageTypes(got); end {
			return types
		}
	}
	return types
}

// messageTypes are the types of the whole handshake messages in clear records.
// It reports the end of those: an alert, or the change to ciphers.
func messageTypes(records []byte) (types []byte, end bool) {
	var messages []byte
	for len(records) >= 5 {
		n := int(binary.BigEndian.Uint16(records[3:]))
		if end = records[0] != 22; end || len(records) < 5+n {
			break
		}
		messages = append(messages, records[5:5+n]...)
		records = records[5+n:]
	}
	for len(messages) >= 4 {
		n := 4 + int(messages[1])<<16 + int(messages[2])<<8 + int(messages[3])
		if len(messages) < n {
			break
		}
		types = append(types, messages[0])
		messages = messages[n:]
	}
	return types, end
}

// emsClient makes one TLS 1.2 connection after the other with OpenSSL, always
// offering the newest session, with the extended master secret or without as
// its arguments say.
const emsClient = `
import socket, ssl, sys
host, port, ca = sys.argv[1:4]
context = ssl.create_default_context(cafile=ca)
context.maximum_version = ssl.TLSVersion.TLSv1_2
no_ems = 1  # SSL_OP_NO_EXTENDED_MASTER_SECRET
session = None
for word in sys.argv[4:]:
    context.options = (context.options | no_ems) if word == "without" else (context.options & ~no_ems)
    with socket.create_connection((host, port)) as raw:
        with context.wrap_socket(raw, server_hostname="app.example", session=session) as c:
            c.sendall(b"GET / HTTP/1.0\r\nHost: app.example\r\n\r\n")
            while c.recv(4096):
                pass
            print(word, "resumed" if c.session_reused else "full")
            session = c.session
`

// OpenSSL without the extended master secret resumes what it made so, and gets
// a full handshake where the two differ, either way round.
func TestOpenSSLWithoutEMS(t *testing.T) {
	python := testtool.Require(t, "python3", "python3")
	r, addr := realRig(t, func(*rig) PolicyOptions { return PolicyOptions{Site: "app"} })
	ca := filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(ca, []byte(r.ca.pem()), 0o600); err != nil {
		t.Fatal(err)
	}
	host, port, _ := net.SplitHostPort(addr)
	out, err := exec.CommandContext(t.Context(), python, "-c", emsClient, host, port, ca,
		"with", "with", "without", "without", "with", "with").CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	want := "with full, with resumed, without full, without resumed, with full, with resumed"
	if got := strings.ReplaceAll(strings.TrimSpace(string(out)), "\n", ", "); got != want {
		t.Errorf("%s\nwant %s", got, want)
	}
}
