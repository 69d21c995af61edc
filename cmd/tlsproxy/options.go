package main

import (
	"fmt"
	"net/http"
	"net/url"
	"time"

	"github.com/tlsproxy/tlsproxy/config"
	"github.com/tlsproxy/tlsproxy/session"
)

func sessionLimits(s config.Sessions) session.Limits {
	limits := session.Limits{
		Capacity: s.Capacity, Lifetime: s.Lifetime, ClientAuthLifetime: s.ClientAuthLifetime,
		ReuseWindow: time.Duration(s.ReuseWindow), ClientShare: s.ClientShare,
	}
	switch s.ReuseWindow {
	case config.ReuseSingle:
		limits.ReuseWindow = session.SingleUse
	case config.ReuseUnlimited:
		limits.ReuseWindow = session.Unlimited
	}
	return limits
}

// ocspProxy chooses the HTTP proxy for requests to responders; nil stands for
// the environment's.
func ocspProxy(text string) (func(*http.Request) (*url.URL, error), error) {
	switch text {
	case "":
		return nil, nil
	case "off":
		return func(*http.Request) (*url.URL, error) { return nil, nil }, nil
	}
	u, err := url.Parse(text)
	if err != nil {
		return nil, fmt.Errorf("not a URL: %w", err)
	}
	return http.ProxyURL(u), nil
}

// ocspOverrides maps the word off to the empty URL, which is asked never.
func ocspOverrides(words map[string]string) map[string]string {
	overrides := make(map[string]string, len(words))
	for from, to := range words {
		if to == "off" {
			to = ""
		}
		overrides[from] = to
	}
	return overrides
}
