package front

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"
)

// firstPassedFD is the first descriptor that systemd passes, sd_listen_fds(3).
const firstPassedFD = 3

// sockets opens listeners. Inherited descriptors stay open for the life of the
// process, so that a reload can take up again one that an earlier one dropped.
type sockets struct {
	listen func(network, address string) (net.Listener, error)
	getenv func(string) string
	getpid func() int

	mu        sync.Mutex
	inherited map[int]*os.File
}

func newSockets(listen func(network, address string) (net.Listener, error)) *sockets {
	if listen == nil {
		listen = func(network, address string) (net.Listener, error) {
			var c net.ListenConfig
			return c.Listen(context.Background(), network, address)
		}
	}
	return &sockets{listen: listen, getenv: os.Getenv, getpid: os.Getpid, inherited: make(map[int]*os.File)}
}

// open opens the sockets of an address: one of the kernel's own, or all that
// were passed to the process under it.
func (s *sockets) open(address string) ([]net.Listener, error) {
	if name, ok := strings.CutPrefix(address, "systemd:"); ok {
		return s.systemd(name)
	}
	if number, ok := strings.CutPrefix(address, "fd:"); ok {
		fd, err := strconv.Atoi(number)
		if err != nil || fd < firstPassedFD {
			return nil, fmt.Errorf("fd %q: must be a number, 3 or above", number)
		}
		ln, err := s.inherit(fd)
		if err != nil {
			return nil, err
		}
		return []net.Listener{ln}, nil
	}
	ln, err := s.listen("tcp", address)
	if err != nil {
		return nil, explainListen(err)
	}
	return []net.Listener{ln}, nil
}

// systemd opens the sockets that systemd passed under a name: FileDescriptorName=
// of the socket unit, by default the unit's own name.
func (s *sockets) systemd(name string) ([]net.Listener, error) {
	if name == "" {
		return nil, errors.New("systemd: no name: must be systemd:NAME, the FileDescriptorName= of the socket unit")
	}
	count, err := strconv.Atoi(s.getenv("LISTEN_FDS"))
	pid, pidErr := strconv.Atoi(s.getenv("LISTEN_PID"))
	if err != nil || pidErr != nil || pid != s.getpid() || count < 0 {
		return nil, errors.New("systemd passed no sockets to this process: is the socket unit enabled and started?")
	}
	names := strings.Split(s.getenv("LISTEN_FDNAMES"), ":")
	var listeners []net.Listener
	for i := range min(count, len(names)) {
		if names[i] != name {
			continue
		}
		ln, err := s.inherit(firstPassedFD + i)
		if err != nil {
			for _, opened := range listeners {
				opened.Close()
			}
			return nil, err
		}
		listeners = append(listeners, ln)
	}
	if len(listeners) == 0 {
		return nil, fmt.Errorf("systemd passed no socket named %q, only %q: set FileDescriptorName= in the socket unit", name, names)
	}
	return listeners, nil
}

// inherit makes a listener of a descriptor that the process was started with.
func (s *sockets) inherit(fd int) (net.Listener, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f := s.inherited[fd]
	if f == nil {
		listening, err := syscall.GetsockoptInt(fd, syscall.SOL_SOCKET, syscall.SO_ACCEPTCONN)
		if err != nil {
			return nil, fmt.Errorf("fd %d is not a socket passed to this process: %w", fd, err)
		}
		if listening == 0 {
			return nil, fmt.Errorf("fd %d is a socket that does not listen", fd)
		}
		syscall.CloseOnExec(fd)
		f = os.NewFile(uintptr(fd), "fd:"+strconv.Itoa(fd))
		s.inherited[fd] = f
	}
	ln, err := net.FileListener(f)
	if err != nil {
		return nil, fmt.Errorf("fd %d: %w", fd, err)
	}
	if _, ok := ln.(*net.TCPListener); !ok {
		ln.Close()
		return nil, fmt.Errorf("fd %d is a %s socket, not a TCP one", fd, ln.Addr().Network())
	}
	return ln, nil
}

// explainListen adds to an error what to do about it.
func explainListen(err error) error {
	if errors.Is(err, syscall.EACCES) {
		return fmt.Errorf("%w: ports below 1024 need the capability CAP_NET_BIND_SERVICE", err)
	}
	return err
}
