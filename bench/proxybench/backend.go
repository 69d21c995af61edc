package proxybench

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"os"
	"os/exec"
	"path/filepath"
	"time"
)

// What the backend answers: a greeting, and bulkBlock again and again.
const (
	greeting   = "Hello, world\n"
	bulkBlocks = 256
	blockSize  = 64 << 10
	bulkSize   = bulkBlocks * blockSize
)

// startBackend starts the nginx that all servers proxy to.
func (b *Bench) startBackend() error {
	dir := filepath.Join(b.dir, "backend")
	if err := os.Mkdir(dir, 0o711); err != nil {
		return err
	}
	if err := b.writeBulk(filepath.Join(dir, "bulk")); err != nil {
		return err
	}
	port, err := freePort()
	if err != nil {
		return err
	}
	path, err := values{Port: port, Dir: dir}.write(backendConf)
	if err != nil {
		return err
	}
	b.backend, err = b.launch(&server{name: "backend"}, exec.Command("/usr/sbin/nginx", "-c", path), dir, port)
	if err != nil {
		return err
	}
	b.backendAddr = b.backend.addr
	return nil
}

func (b *Bench) writeBulk(path string) error {
	b.block = make([]byte, blockSize)
	rand.Read(b.block)
	f, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer f.Close()
	for range bulkBlocks {
		if _, err := f.Write(b.block); err != nil {
			return err
		}
	}
	return f.Close()
}

// makeCertificate writes a certificate for localhost and its key, ECDSA P-256, into
// a directory of their own: servers may watch it.
func (b *Bench) makeCertificate() error {
	if err := os.Mkdir(filepath.Join(b.dir, "tls"), 0o700); err != nil {
		return err
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	t := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()),
		Subject:      pkix.Name{CommonName: "localhost"},
		DNSNames:     []string{"localhost"},
		NotBefore:    time.Now().Add(-time.Hour),
		NotAfter:     time.Now().Add(24 * time.Hour),
		KeyUsage:     x509.KeyUsageDigitalSignature,
		ExtKeyUsage:  []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	if b.leaf, err = x509.CreateCertificate(rand.Reader, t, t, key.Public(), key); err != nil {
		return err
	}
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return err
	}
	cert := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: b.leaf})
	private := pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})
	for name, text := range map[string][]byte{"cert.pem": cert, "key.pem": private, "pair.pem": append(cert, private...)} {
		if err := os.WriteFile(filepath.Join(b.dir, "tls", name), text, 0o600); err != nil {
			return fmt.Errorf("certificate: %w", err)
		}
	}
	return nil
}
