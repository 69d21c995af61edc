package certs

import (
	"fmt"
	"log/slog"
	"testing"

	"github.com/tlsproxy/tlsproxy/internal/pki"
)

func BenchmarkGetCertificate(b *testing.B) {
	ca := newCA(b)
	dir := b.TempDir()
	s := newStore(b, Options{Logger: slog.New(slog.DiscardHandler)})
	load(b, s,
		Source{Files: writePair(b, dir, "ec", issue(b, ca, pki.Request{Names: []string{"a.test", "*.a.test"}}))},
		Source{Files: writePair(b, dir, "rsa", issue(b, ca, pki.Request{Names: []string{"a.test", "*.a.test"}, KeyType: pki.RSA2048}))})
	for _, name := range []string{"a.test", "x.a.test", "unknown.test"} {
		hello := modern(name)
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := s.GetCertificate(hello); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkLoadDirectory(b *testing.B) {
	ca := newCA(b)
	dir := b.TempDir()
	for i := range 1000 {
		writePair(b, dir, fmt.Sprintf("%04d", i), issue(b, ca, pki.Request{Names: []string{fmt.Sprintf("%d.test", i)}}))
	}
	s := newStore(b, Options{Logger: slog.New(slog.DiscardHandler)})
	b.ReportAllocs()
	for b.Loop() {
		load(b, s, Source{Directory: &Directory{Path: dir}})
	}
}
