package e2e

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/tlsproxy/tlsproxy/internal/testtool"
)

// With a store that is not there, everything on standard error is a line of the
// log, the store's library included.
func TestStoreLogsInOneForm(t *testing.T) {
	p := newProxy(t, fmt.Sprintf(`
log: {format: json, level: debug}
listeners:
  - address: "{{tls}}"
certificates:
  - {local: {hosts: [localhost]}}
store:
  redis: {mode: sentinel, master_name: main, addresses: ["127.0.0.1:%d"]}
  key_file: "{{dir}}/store.keys"
sites:
  - hosts: [localhost]
    routes: [{upstream: echo}]
upstreams:
  echo: {backends: ["builtin:echo"]}
`, testtool.FreePort(t)))
	p.write("store.keys", newKeyLine()+"\n")
	p.start()
	p.waitReady()
	eventually(t, "the library says that there is no Sentinel", func() bool {
		return strings.Contains(p.stderr.String(), `entinel`)
	})
	said := p.stderr.String()
	for line := range strings.Lines(said[:strings.LastIndexByte(said, '\n')+1]) {
		if !json.Valid([]byte(line)) {
			t.Errorf("not a line of the log: %s", line)
		}
	}
}
