package main

import (
	"context"
	"runtime/debug"

	"github.com/tlsproxy/tlsproxy/internal/memwatch"
)

// watchMemory drops sessions, which cost their clients a full handshake, before
// the process is killed for its memory, which costs everybody everything.
func (p *program) watchMemory(ctx context.Context) error {
	limit := memwatch.Limit()
	if limit > 0 {
		debug.SetMemoryLimit(limit) // the collector works harder near it, too
	}
	watcher, err := memwatch.New(memwatch.Options{Limit: limit, Shed: p.shedSessions, Logger: p.log})
	if err != nil {
		return err
	}
	return watcher.Run(ctx)
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
