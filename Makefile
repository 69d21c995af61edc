# What a contributor types. `make` alone lists it.

.DEFAULT_GOAL := help
.PHONY: help build check deps test race lint fmt vet tidy fuzz cover bench bench-cache bench-proxy vuln image clean

TOOL     := go tool -modfile=tools/go.mod
VERSION  ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo devel)
LDFLAGS  := -s -w -X main.version=$(VERSION)
FUZZTIME ?= 10s

help: ## this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):[^#]*## /\1|/' | \
		awk -F'|' '{ printf "  %-12s %s\n", $$1, $$2 }'

build: ## static binary in bin/
	CGO_ENABLED=0 go build -trimpath -ldflags '$(LDFLAGS)' -o bin/tlsproxy ./cmd/tlsproxy

check: lint test race ## all that CI runs before a merge, but fuzzing and cross builds

deps: ## programs that the tests run: installed as root, else named
	@scripts/test-deps

# The version control system is not asked what the tests' binaries are built from:
# it may be absent, or distrust the owner of the files.
test race: export GOFLAGS := $(strip $(GOFLAGS) -buildvcs=false)

test: deps ## every test, in random order
	go test -shuffle=on -timeout 20m ./...
	go -C bench test -shuffle=on ./...

race: deps ## every test of the library packages, under the race detector
	@scripts/race

lint: fmt vet tidy ## formatting, go vet, staticcheck, go.mod; golangci-lint where it is installed
	$(TOOL) staticcheck ./...
	@if command -v golangci-lint >/dev/null; then golangci-lint run; fi

fmt: ## fail if a file is not formatted
	@out=$$(gofmt -l $$(find . -name '*.go' -not -path './.cache/*')); \
		if [ -n "$$out" ]; then echo "gofmt -w would change:"; echo "$$out"; exit 1; fi

vet: ## go vet
	go vet ./...
	go -C bench vet ./...

tidy: ## fail if go.mod or go.sum of a module is not tidy
	@scripts/each-module go mod tidy -diff

fuzz: ## every fuzz target for FUZZTIME (10s), or those below FUZZ_IN ('ocsp|certs')
	@scripts/fuzz $(FUZZTIME) '$(FUZZ_IN)'

cover: ## coverage over all packages
	go test -coverprofile=cover.out -coverpkg=./... ./... && go tool cover -func=cover.out | tail -1

bench: ## the packages' benchmarks, ten runs into bench.new
	go test -run='^$$' -bench=. -benchmem -count=10 ./... | tee bench.new

bench-cache: ## the cache against the JDK's, its review's designs and other Go caches
	cd bench && go run ./cmd/cachebench

bench-proxy: ## server CPU per handshake and request, against other proxies
	$(MAKE) -C bench proxy

vuln: ## known vulnerabilities that the code reaches
	$(TOOL) govulncheck ./...

image: ## container image, with docker or podman
	$$(command -v docker || command -v podman || echo docker) build --build-arg VERSION=$(VERSION) -t tlsproxy:$(VERSION) .

clean: ## remove what was built here
	rm -rf bin .cache cover.out bench.new
