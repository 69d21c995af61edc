package main

import "context"

func (p *program) watchMemory(ctx context.Context) error { <-ctx.Done(); return nil }
