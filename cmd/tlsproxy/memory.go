package main

import (
	"context"
	"runtime/debug"

	"github.com/tlsproxy/tlsproxy/config"
	"github.com/tlsproxy/tlsproxy/internal/memwatch"
)

func (p *program) buildMemory(*config.Config) (err error) {
	p.memory, err = memwatch.New(memwatch.Options{Limit: memwatch.Limit(), Shed: p.shedSessions, Logger: p.log})
	return err
}

// watchMemory drops sessions, which cost their clients a full handshake, before
// the process is killed for its memory, which costs everybody everything.
func (p *program) watchMemory(ctx context.Context) error {
	if limit := p.memory.Status().Limit; limit > 0 {
		debug.SetMemoryLimit(limit) // the collector works harder near it, too
	}
	return p.memory.Run(ctx)
}

// shedSessions drops about so many bytes of sessions, least recently used
// first, and returns how many it freed.
func (p *program) shedSessions(bytes int64) int64 {
	before := p.resumer.Stats()
	if before.Entries == 0 || before.Bytes == 0 {
		return 0
	}
	each := max(1, before.Bytes/int64(before.Entries))
	p.resumer.Shed(int(bytes/each) + 1)
	return max(0, before.Bytes-p.resumer.Stats().Bytes)
}
