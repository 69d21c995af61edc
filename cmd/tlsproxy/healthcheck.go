package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/tlsproxy/tlsproxy/config"
)

// runHealthcheck asks /readyz of a running tlsproxy. It is what HEALTHCHECK
// runs in an image that has no shell and no curl.
func runHealthcheck(args []string, stdout, stderr io.Writer) int {
	flags := flag.NewFlagSet("tlsproxy healthcheck", flag.ContinueOnError)
	flags.SetOutput(stderr)
	admin := flags.String("admin", "", "`ADDRESS` of the admin listener (default: from -config, else 127.0.0.1:9090)")
	path := flags.String("config", "", "read the admin listener's address from `FILE`")
	timeout := flags.Duration("timeout", 3*time.Second, "give up after this time")
	live := flags.Bool("live", false, "ask /healthz (is it alive) instead of /readyz (should it get traffic)")
	if status, done := parseFlags(flags, args, 0); done {
		return status
	}
	address, err := adminAddress(*admin, *path)
	if err != nil {
		printErrors(stderr, err)
		return exitFailure
	}
	endpoint := "/readyz"
	if *live {
		endpoint = "/healthz"
	}
	ctx, cancel := context.WithTimeout(context.Background(), *timeout)
	defer cancel()
	answer, err := adminRequest(ctx, address, endpoint, "")
	if err != nil {
		fmt.Fprintln(stderr, "tlsproxy healthcheck:", err)
		return exitFailure
	}
	fmt.Fprintln(stdout, strings.TrimSpace(answer))
	return exitOK
}

// parseFlags parses a sub-command's flags and checks the number of arguments
// left, any number if wantArgs is negative; done says that the command is over,
// with the status to exit with.
func parseFlags(flags *flag.FlagSet, args []string, wantArgs int) (status int, done bool) {
	switch err := flags.Parse(args); {
	case errors.Is(err, flag.ErrHelp):
		return exitOK, true
	case err != nil:
		return exitUsage, true
	case wantArgs >= 0 && flags.NArg() != wantArgs:
		fmt.Fprintf(flags.Output(), "%s: %d arguments, want %d\n", flags.Name(), flags.NArg(), wantArgs)
		flags.Usage()
		return exitUsage, true
	}
	return exitOK, false
}

// adminAddress is where a sub-command finds the running proxy: as told, as the
// configuration file says, or at the default.
func adminAddress(told, path string) (string, error) {
	switch {
	case told != "":
		return told, nil
	case path != "":
		cfg, err := config.Load(path)
		if err != nil {
			return "", err
		}
		if adminListenAddress(cfg) == "" {
			return "", cfg.At("admin.address", errors.New("off, so there is nobody to ask: give the admin listener an address"))
		}
		return dialable(cfg.Admin.Address), nil
	default:
		return config.DefaultAdminAddress, nil
	}
}

// dialable turns a listening address into one to connect to: a wildcard host
// is reached on loopback.
func dialable(address string) string {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return address
	}
	if ip := net.ParseIP(host); host == "" || ip.IsUnspecified() {
		host = "localhost"
	}
	return net.JoinHostPort(host, port)
}

// adminRequest makes one request of the admin listener, a POST if there is a
// body, and returns the body of a successful answer; any other status is an
// error that carries the body.
func adminRequest(ctx context.Context, address, endpoint, body string) (string, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+endpoint, strings.NewReader(body))
	if err != nil {
		return "", err
	}
	if body != "" {
		req.Method = http.MethodPost
		req.Header.Set("Content-Type", "application/json")
	}
	// A proxy from the environment must not stand between a process and its
	// own administration.
	client := &http.Client{Transport: &http.Transport{Proxy: nil, DisableKeepAlives: true}}
	resp, err := client.Do(req)
	if err != nil {
		return "", fmt.Errorf("%w (is tlsproxy running, with its admin listener at %s?)", err, address)
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	if err != nil {
		return "", err
	}
	if resp.StatusCode/100 != 2 {
		return "", fmt.Errorf("%s answered %s: %s", endpoint, resp.Status, strings.TrimSpace(string(answer)))
	}
	return string(answer), nil
}
