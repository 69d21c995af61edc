package main

import (
	"fmt"
	"net"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// notifySystemd tells the service manager about a change of state, as
// sd_notify(3) does; without NOTIFY_SOCKET in the environment it does nothing.
// The service manager is an observer: a message that cannot be delivered is
// not an error of the proxy.
func notifySystemd(state string) {
	path := os.Getenv("NOTIFY_SOCKET")
	if path == "" {
		return
	}
	conn, err := net.Dial("unixgram", path)
	if err != nil {
		return
	}
	defer conn.Close()
	conn.SetWriteDeadline(time.Now().Add(time.Second))
	conn.Write([]byte(state))
}

// notifyReloading announces a reload. With Type=notify-reload systemd wants
// the monotonic time at which it began, to tell it from earlier ones.
func notifyReloading() {
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &now); err != nil {
		return
	}
	notifySystemd(fmt.Sprintf("RELOADING=1\nMONOTONIC_USEC=%d", now.Nano()/int64(time.Microsecond)))
}
