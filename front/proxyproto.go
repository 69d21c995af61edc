package front

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"time"

	"github.com/pires/go-proxyproto"
)

// ProxyMode says whether connections of a listener begin with a header of the
// PROXY protocol, version 1 or 2. The zero value is [ProxyOff].
type ProxyMode uint8

// The modes.
const (
	// ProxyOff expects none. A connection that begins with one is no TLS and is
	// closed.
	ProxyOff ProxyMode = iota
	// ProxyOptional reads a header from trusted proxies if they send one. All
	// other sources speak TLS at once: a header from one of them is not looked
	// for, and as it is no TLS, closes the connection.
	ProxyOptional
	// ProxyRequired demands a header of every connection: one without is closed,
	// and so is any connection from a source that is not a trusted proxy.
	ProxyRequired
)

// proxyModes is every mode, by its number.
var proxyModes = [...]string{"off", "optional", "required"}

// String is the word that the configuration uses for the mode.
func (m ProxyMode) String() string {
	if int(m) < len(proxyModes) {
		return proxyModes[m]
	}
	return fmt.Sprintf("proxy_mode(%d)", uint8(m))
}

// ParseProxyMode reads the word of the configuration: off, optional or
// required. The empty word is off.
func ParseProxyMode(word string) (ProxyMode, error) {
	if word == "" {
		return ProxyOff, nil
	}
	if i := slices.Index(proxyModes[:], word); i >= 0 {
		return ProxyMode(i), nil
	}
	return ProxyOff, fmt.Errorf("proxy_protocol %q: must be off, optional or required", word)
}

// prefixes is a set of networks.
type prefixes []netip.Prefix

func newPrefixes(list []netip.Prefix) prefixes {
	set := make(prefixes, 0, len(list))
	for _, p := range list {
		if p.Addr().Is4In6() && p.Bits() >= 96 {
			p = netip.PrefixFrom(p.Addr().Unmap(), p.Bits()-96)
		}
		set = append(set, p.Masked())
	}
	return set
}

func (s prefixes) contains(addr netip.Addr) bool {
	addr = addr.Unmap().WithZone("")
	return slices.ContainsFunc(s, func(p netip.Prefix) bool { return p.Contains(addr) })
}

// headerBuffer holds a header of version 1, and of version 2 without much after
// the addresses; longer ones are read in several steps.
const headerBuffer = 256

// proxyHeader reads the header where the listener's mode asks for one, and with
// it the client's address. It is all that happens before TLS.
func (c *conn) proxyHeader(state *portState, timeout time.Duration) error {
	c.handshake.proxy = state.proxy
	if state.proxy == ProxyOff {
		return nil
	}
	if !state.trusted.contains(c.info.Client.Addr()) {
		if state.proxy == ProxyRequired {
			return fail(ReasonProxyHeader, fmt.Errorf("%s is not among the trusted proxies", c.info.Client.Addr()))
		}
		return nil
	}
	if err := c.Conn.SetReadDeadline(time.Now().Add(timeout)); err != nil {
		return err
	}
	uncut := context.AfterFunc(c.port.front.shaking, func() { c.Conn.Close() })
	defer uncut()
	r := bufio.NewReaderSize(c.Conn, headerBuffer)
	header, err := proxyproto.Read(r)
	switch {
	case errors.Is(err, proxyproto.ErrNoProxyProtocol):
		if n := r.Buffered(); n == 0 {
			return fail(ReasonEOF, errors.New("closed before the PROXY header"))
		}
		if state.proxy == ProxyRequired {
			return fail(ReasonProxyHeader, errors.New("no PROXY header"))
		}
	case err != nil:
		return fail(headerReason(err), fmt.Errorf("PROXY header: %w", err))
	default:
		c.applyHeader(header)
	}
	if n := r.Buffered(); n > 0 {
		rest, _ := r.Peek(n)
		c.prefix = bytes.Clone(rest)
	}
	return nil
}

// headerReason tells a header that did not come from one that came wrong.
func headerReason(err error) Reason {
	if r := reasonOf(err); r == ReasonTimeout || r == ReasonEOF {
		return r
	}
	return ReasonProxyHeader
}

// applyHeader takes the addresses over. A LOCAL header (the proxy's own health
// check) and an UNKNOWN one name nobody: the peer stays the client.
func (c *conn) applyHeader(h *proxyproto.Header) {
	if h.Command.IsLocal() {
		return
	}
	client, ok := addrPort(h.SourceAddr)
	if !ok {
		return
	}
	c.info.Proxy, c.info.Client = c.info.Client, client
	c.remote = net.TCPAddrFromAddrPort(client)
	if local, ok := addrPort(h.DestinationAddr); ok {
		c.info.Local = local
	}
}

// addrPort is a TCP address in netip's form, IPv4 as such.
func addrPort(a net.Addr) (netip.AddrPort, bool) {
	tcp, ok := a.(*net.TCPAddr)
	if !ok || tcp == nil {
		return netip.AddrPort{}, false
	}
	ap := tcp.AddrPort()
	if !ap.Addr().IsValid() {
		return netip.AddrPort{}, false
	}
	return netip.AddrPortFrom(ap.Addr().Unmap(), ap.Port()), true
}
