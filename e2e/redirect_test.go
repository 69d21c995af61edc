package e2e

import (
	"fmt"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/tlsproxy/tlsproxy/internal/testtool"
)

// TestRedirectPorts: the redirect leads to a listener that serves the host, or
// to the port that the configuration names for all.
func TestRedirectPorts(t *testing.T) {
	second := fmt.Sprint(testtool.FreePort(t))
	config := strings.ReplaceAll(`
listeners:
  - address: "{{tls}}"
  - address: "SECOND"
http: {address: "{{http}}"}
certificates:
  - local: {hosts: [first.test, second.test, both.test]}
sites:
  - {hosts: [first.test], listeners: ["{{tls}}"], routes: [{upstream: echo}]}
  - {hosts: [second.test], listeners: ["SECOND"], routes: [{upstream: echo}]}
  - {hosts: [both.test], routes: [{upstream: echo}]}
upstreams:
  echo: {backends: ["builtin:echo"]}
`, "SECOND", "127.0.0.1:"+second)
	p := startProxy(t, config)
	_, first, _ := net.SplitHostPort(p.addr)
	p.redirects(map[string]string{"first.test": first, "second.test": second, "both.test": first, "unknown.test": ""})

	p.writeConfig(strings.Replace(config, `"{{http}}"}`, `"{{http}}", redirect_port: 9443}`, 1))
	p.mustReload()
	p.redirects(map[string]string{"first.test": "9443", "second.test": "9443", "unknown.test": ""})
}

// redirects checks to which port each host is sent; "" stands for 404.
func (p *proxy) redirects(ports map[string]string) {
	p.t.Helper()
	client := &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	for host, port := range ports {
		r, err := http.NewRequest("GET", "http://"+p.http+"/x", nil)
		if err != nil {
			p.t.Fatal(err)
		}
		r.Host = host
		resp, err := client.Do(r)
		if err != nil {
			p.t.Fatal(err)
		}
		resp.Body.Close()
		status, location := http.StatusMovedPermanently, "https://"+host+":"+port+"/x"
		if port == "" {
			status, location = http.StatusNotFound, ""
		}
		if resp.StatusCode != status || resp.Header.Get("Location") != location {
			p.t.Errorf("%s: %d to %q, want %d to %q", host, resp.StatusCode, resp.Header.Get("Location"), status, location)
		}
	}
}
