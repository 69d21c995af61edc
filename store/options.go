package store

import (
	"cmp"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"time"
)

// Defaults of [Options].
const (
	DefaultPrefix   = "tlsproxy:"
	DefaultTimeout  = 50 * time.Millisecond
	DefaultPoolSize = 64
)

// ACLRule is what an ACL user needs, for the default prefix: put it behind the
// user's name and password in `ACL SETUSER` or an ACL file. A Cluster or
// Sentinel needs no more.
const ACLRule = "resetkeys ~tlsproxy:* resetchannels &tlsproxy:* -@all " +
	"+get +set +getdel +pexpire +unlink +del +hset +hget +hdel +hkeys " +
	"+zadd +zrangebyscore +zrem +zremrangebyscore +multi +exec +eval +evalsha " +
	"+publish +subscribe +unsubscribe +ping +hello +select " +
	"+cluster|slots +cluster|shards +cluster|nodes +command"

// Mode is how the servers are arranged.
type Mode string

// Modes of [Options].
const (
	Single   Mode = "single"   // one server; "" means the same
	Sentinel Mode = "sentinel" // a master and its replicas, watched by Sentinels
	Cluster  Mode = "cluster"  // a Redis Cluster
)

// Options of [New]. Addresses and KeyFile are required.
type Options struct {
	// Mode is how the servers are arranged. "": Single.
	Mode Mode

	// Addresses are host:port: of the one server (or unix:/path), of the
	// Sentinels, or of any nodes of the Cluster.
	Addresses []string

	// MasterName is the name that the Sentinels know the master by.
	MasterName string

	// Username is the ACL user. "": the default user.
	Username string

	// PasswordFile holds the password; it is read for each new connection,
	// so that a changed password needs no restart. "": none.
	PasswordFile string

	// SentinelUsername and SentinelPasswordFile are the same for the
	// Sentinels; their password is read once.
	SentinelUsername     string
	SentinelPasswordFile string

	// DB is the number of the database; not in Mode Cluster.
	DB int

	// TLS encrypts the connections, to the Sentinels as well. nil: plain.
	TLS *tls.Config

	// KeyFile holds the keys that seal what is stored; see [Keyring].
	KeyFile string

	// Prefix begins every key. "": DefaultPrefix.
	Prefix string

	// Timeout is how quickly a server must answer to be asked during
	// handshakes. 0: DefaultTimeout.
	Timeout time.Duration

	// PoolSize is the most connections to each server. 0: DefaultPoolSize.
	PoolSize int

	// Logger gets one line for each change of state. nil: slog.Default().
	Logger *slog.Logger
}

// resolve puts the defaults in and reports everything that is wrong.
func (o Options) resolve() (Options, error) {
	o.Mode = cmp.Or(o.Mode, Single)
	o.Prefix = cmp.Or(o.Prefix, DefaultPrefix)
	o.Timeout = cmp.Or(o.Timeout, DefaultTimeout)
	o.PoolSize = cmp.Or(o.PoolSize, DefaultPoolSize)
	o.Logger = cmp.Or(o.Logger, slog.Default())
	return o, errors.Join(o.checkMode(), o.checkAddresses(), o.checkRest())
}

func (o *Options) checkMode() error {
	switch o.Mode {
	case Single:
		if len(o.Addresses) > 1 {
			return fmt.Errorf("store: mode single takes one address, not %d; for several servers say sentinel or cluster", len(o.Addresses))
		}
	case Sentinel:
		if o.MasterName == "" {
			return errors.New("store: mode sentinel needs the master's name")
		}
	case Cluster:
		if o.DB != 0 {
			return errors.New("store: a cluster has no numbered databases")
		}
	default:
		return fmt.Errorf("store: unknown mode %q: want single, sentinel or cluster", o.Mode)
	}
	if o.Mode != Sentinel && o.MasterName != "" {
		return fmt.Errorf("store: a master's name has no meaning in mode %s", o.Mode)
	}
	return nil
}

func (o *Options) checkAddresses() error {
	if len(o.Addresses) == 0 {
		return errors.New("store: no address")
	}
	var errs []error
	for _, a := range o.Addresses {
		if path, ok := strings.CutPrefix(a, "unix:"); ok {
			if o.Mode != Single || path == "" {
				errs = append(errs, fmt.Errorf("store: address %q: a unix socket is unix:/path, in mode single", a))
			}
			continue
		}
		if _, port, err := net.SplitHostPort(a); err != nil || port == "" {
			errs = append(errs, fmt.Errorf("store: address %q is not host:port", a))
		}
	}
	return errors.Join(errs...)
}

func (o *Options) checkRest() error {
	var errs []error
	if o.KeyFile == "" {
		errs = append(errs, errors.New("store: no key file"))
	}
	if o.Timeout < 0 {
		errs = append(errs, fmt.Errorf("store: timeout %v is negative", o.Timeout))
	}
	if o.PoolSize < 0 {
		errs = append(errs, fmt.Errorf("store: pool size %d is negative", o.PoolSize))
	}
	if o.DB < 0 {
		errs = append(errs, fmt.Errorf("store: database %d is negative", o.DB))
	}
	return errors.Join(errs...)
}
