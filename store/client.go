package store

import (
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

const (
	dialTimeout = time.Second
	ioTimeout   = 2 * time.Second // where the context sets no earlier deadline
)

// newClient makes the client for the mode. It connects on first use.
func newClient(o Options) (redis.UniversalClient, error) {
	switch o.Mode {
	case Sentinel:
		return newSentinelClient(o)
	case Cluster:
		return redis.NewClusterClient(&redis.ClusterOptions{
			Addrs: o.Addresses, Protocol: 2, DisableIdentity: true,
			CredentialsProviderContext: o.credentials, TLSConfig: o.TLS,
			DialTimeout: dialTimeout, DialerRetries: 1, ReadTimeout: ioTimeout, WriteTimeout: ioTimeout,
			ContextTimeoutEnabled: true, MaxRetries: -1,
			MinRetryBackoff: 4 * time.Millisecond, MaxRetryBackoff: 16 * time.Millisecond,
			PoolSize: o.PoolSize, PoolTimeout: ioTimeout,
			MaintNotificationsConfig: noNotifications(),
		}), nil
	}
	network, address := "tcp", o.Addresses[0]
	if path, ok := strings.CutPrefix(address, "unix:"); ok {
		network, address = "unix", path
	}
	return redis.NewClient(&redis.Options{
		Network: network, Addr: address, Protocol: 2, DisableIdentity: true, DB: o.DB,
		CredentialsProviderContext: o.credentials, TLSConfig: o.TLS,
		DialTimeout: dialTimeout, DialerRetries: 1, ReadTimeout: ioTimeout, WriteTimeout: ioTimeout,
		ContextTimeoutEnabled: true, MaxRetries: -1,
		PoolSize: o.PoolSize, PoolTimeout: ioTimeout,
		MaintNotificationsConfig: noNotifications(),
	}), nil
}

func newSentinelClient(o Options) (redis.UniversalClient, error) {
	password, err := readPassword(o.SentinelPasswordFile)
	if err != nil {
		return nil, err
	}
	return redis.NewFailoverClient(&redis.FailoverOptions{
		MasterName: o.MasterName, SentinelAddrs: o.Addresses,
		SentinelUsername: o.SentinelUsername, SentinelPassword: password,
		Protocol: 2, DisableIdentity: true, DB: o.DB,
		CredentialsProviderContext: o.credentials, TLSConfig: o.TLS,
		DialTimeout: dialTimeout, DialerRetries: 1, ReadTimeout: ioTimeout, WriteTimeout: ioTimeout,
		ContextTimeoutEnabled: true, MaxRetries: -1,
		PoolSize: o.PoolSize, PoolTimeout: ioTimeout,
	}), nil
}

// noNotifications turns a feature of hosted servers off: nothing is asked of a
// server that an ACL user might not be allowed.
func noNotifications() *maintnotifications.Config {
	return &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
}

// credentials reads the password anew for each connection.
func (o Options) credentials(context.Context) (username, password string, err error) {
	password, err = readPassword(o.PasswordFile)
	return o.Username, password, err
}

func readPassword(file string) (string, error) {
	if file == "" {
		return "", nil
	}
	b, err := os.ReadFile(file)
	if err != nil {
		return "", fmt.Errorf("store: password file: %w", err)
	}
	password := strings.TrimRight(string(b), "\r\n")
	if password == "" {
		return "", fmt.Errorf("store: password file %q is empty", file)
	}
	return password, nil
}
