package config

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Off is the value of a numeric field whose word in the file is off.
const Off = -1

// Size is a number of bytes. In the file it has a unit: 512B, 64KiB, 10MB.
type Size int64

// Strings is a list of strings that may be written as one string.
type Strings []string

// ReuseWindow is a duration, or one of two words.
type ReuseWindow time.Duration

// The words of a [ReuseWindow].
const (
	ReuseSingle    ReuseWindow = -1 // single: a handle resumes once
	ReuseUnlimited ReuseWindow = -2 // unlimited: for the session's whole life
)

// StatusRange is a range of HTTP statuses, both ends included. In the file it is
// one status (200) or two (200-399).
type StatusRange struct {
	Min, Max int
}

// UnmarshalText parses 200 or 200-399.
func (r *StatusRange) UnmarshalText(text []byte) error {
	low, high, two := strings.Cut(string(text), "-")
	if !two {
		high = low
	}
	var err1, err2 error
	r.Min, err1 = strconv.Atoi(strings.TrimSpace(low))
	r.Max, err2 = strconv.Atoi(strings.TrimSpace(high))
	if err1 != nil || err2 != nil || r.Min < 100 || r.Max > 599 || r.Min > r.Max {
		return fmt.Errorf("%q is not a range of statuses: write it like 200 or 200-399", text)
	}
	return nil
}

// Switch is on or off.
type Switch string

// On reports whether the switch is on.
func (s Switch) On() bool { return s == "on" }

func (Switch) choices() []string { return []string{"on", "off"} }

// ProxyProtocol says whether connections begin with a PROXY protocol header.
type ProxyProtocol string

// The values of [ProxyProtocol].
const (
	ProxyOff      ProxyProtocol = "off"      // never
	ProxyOptional ProxyProtocol = "optional" // from trusted proxies, if it is there
	ProxyRequired ProxyProtocol = "required" // always
)

func (ProxyProtocol) choices() []string { return []string{"off", "optional", "required"} }

// TLSVersion is "1.2" or "1.3".
type TLSVersion string

func (TLSVersion) choices() []string { return []string{"1.2", "1.3"} }

// ClientAuthMode says what is asked of clients.
type ClientAuthMode string

// The values of [ClientAuthMode].
const (
	ClientAuthNone          ClientAuthMode = "none"            // no certificate is asked for
	ClientAuthRequest       ClientAuthMode = "request"         // asked for, not verified, never vouched for
	ClientAuthVerifyIfGiven ClientAuthMode = "verify_if_given" // verified when there is one
	ClientAuthRequire       ClientAuthMode = "require"         // required and verified
)

// Verifies reports whether certificates are verified in this mode.
func (m ClientAuthMode) Verifies() bool {
	return m == ClientAuthVerifyIfGiven || m == ClientAuthRequire
}

func (ClientAuthMode) choices() []string {
	return []string{"none", "request", "verify_if_given", "require"}
}

// ClientOCSP says what becomes of a client whose certificate's responder does
// not answer.
type ClientOCSP string

// The values of [ClientOCSP].
const (
	ClientOCSPOff  ClientOCSP = "off"  // not asked
	ClientOCSPSoft ClientOCSP = "soft" // no answer lets the client in
	ClientOCSPHard ClientOCSP = "hard" // no answer keeps the client out
)

func (ClientOCSP) choices() []string { return []string{"off", "soft", "hard"} }

// RedisMode is how a Redis is run.
type RedisMode string

// The values of [RedisMode].
const (
	RedisSingle   RedisMode = "single"
	RedisSentinel RedisMode = "sentinel"
	RedisCluster  RedisMode = "cluster"
)

func (RedisMode) choices() []string { return []string{"single", "sentinel", "cluster"} }

// KeyType is the type of a certificate's key.
type KeyType string

func (KeyType) choices() []string {
	return []string{"ecdsa-p256", "ecdsa-p384", "rsa-2048", "rsa-4096", "ed25519"}
}

// TSIGAlgorithm is the algorithm of a TSIG key.
type TSIGAlgorithm string

func (TSIGAlgorithm) choices() []string {
	return []string{"hmac-sha256", "hmac-sha384", "hmac-sha512", "hmac-sha224", "hmac-sha1"}
}

// Balance is how a backend is chosen.
type Balance string

// The values of [Balance].
const (
	BalanceRoundRobin Balance = "round_robin" // in turn
	BalanceLeastConn  Balance = "least_conn"  // the one with the fewest requests in flight
	BalanceRandomTwo  Balance = "random_two"  // the better of two drawn at random
)

func (Balance) choices() []string { return []string{"round_robin", "least_conn", "random_two"} }

// LogLevel is the least level that is logged.
type LogLevel string

func (LogLevel) choices() []string { return []string{"debug", "info", "warn", "error"} }

// LogFormat is json or text.
type LogFormat string

// The values of [LogFormat].
const (
	LogJSON LogFormat = "json" // one JSON object a line
	LogText LogFormat = "text" // key=value
)

func (LogFormat) choices() []string { return []string{"json", "text"} }

// AccessLogFormat is json.
type AccessLogFormat string

func (AccessLogFormat) choices() []string { return []string{"json"} }
