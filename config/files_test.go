package config

import (
	"os"
	"reflect"
	"strings"
	"testing"
)

// TestFilesAreAbsolute: whatever names a file is taken from the working
// directory, so that the errors of those who open it tell where they looked.
func TestFilesAreAbsolute(t *testing.T) {
	t.Chdir(t.TempDir())
	c, err := Parse("f", []byte(`
listeners: [{address: ":8443"}]
certificates:
  - {cert: a.crt, key: link/../a.key}
  - {pkcs12: a.p12, passphrase_file: pass}
  - {directory: certs.d}
  - {cert: /abs/../b.crt, key: /abs/b.key}
sites:
  - hosts: [a.example.com]
    tls: {client_auth: {mode: require, ca_file: [ca.pem, /abs/ca.pem], crl_file: x.crl, allow_file: allow}}
    routes: [{upstream: web}]
upstreams:
  web: {backends: ["https://127.0.0.1:8081"], tls: {ca_file: up.pem, cert: up.crt, key: up.key}}
store: {key_file: keys, redis: {addresses: ["127.0.0.1:1"], password_file: pw}}
`))
	if err != nil {
		t.Fatal(err)
	}
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	auth, up := c.Sites[0].TLS.ClientAuth, c.Upstreams["web"].TLS
	for got, want := range map[string]string{
		c.Certificates[0].Cert: "a.crt", c.Certificates[0].Key: "link/../a.key",
		c.Certificates[1].PKCS12: "a.p12", c.Certificates[1].PassphraseFile: "pass", c.Certificates[2].Directory: "certs.d",
		auth.CAFile[0]: "ca.pem", auth.CRLFile[0]: "x.crl", auth.AllowFile[0]: "allow",
		up.CAFile: "up.pem", up.Cert: "up.crt", up.Key: "up.key", c.Store.KeyFile: "keys", c.Store.Redis.PasswordFile: "pw",
	} {
		if want = dir + "/" + want; got != want {
			t.Errorf("%q; want %q", got, want)
		}
	}
	if c.Certificates[3].Cert != "/abs/../b.crt" || auth.CAFile[1] != "/abs/ca.pem" || c.Certificates[0].PKCS12 != "" {
		t.Errorf("absolute and empty names were changed: %+v, %q", c.Certificates, auth.CAFile)
	}
}

// TestFileFieldsAreTagged finds the field that somebody adds.
func TestFileFieldsAreTagged(t *testing.T) {
	seen := make(map[reflect.Type]bool)
	var walk func(t reflect.Type)
	walk = func(typ reflect.Type) {
		switch typ.Kind() {
		case reflect.Pointer, reflect.Slice, reflect.Map:
			walk(typ.Elem())
		case reflect.Struct:
			if seen[typ] || isScalar(typ) {
				return
			}
			seen[typ] = true
			for _, f := range fieldsOf(typ) {
				if strings.HasSuffix(f.name, "_file") && f.tag.Get("file") == "" {
					t.Errorf("%s of %s names a file and lacks the tag", f.name, typ)
				}
				walk(typ.FieldByIndex(f.index).Type)
			}
		}
	}
	walk(reflect.TypeFor[Config]())
}
