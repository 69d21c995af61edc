package proxybench

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"
)

// A server is one of those that are compared.
type server struct {
	name    string
	debian  string // package of the program; "": built here
	h2      bool   // speaks HTTP/2
	compare bool   // is a competitor, not the floor
	command func(b *Bench, dir string, port int) (*exec.Cmd, error)
}

// running is a server that was started.
type running struct {
	server *server
	cmd    *exec.Cmd
	done   chan struct{} // closed when the process has ended
	addr   string
	dir    string
}

// start starts a server and waits until it accepts connections.
func (b *Bench) start(s *server) (*running, error) {
	dir, err := os.MkdirTemp(b.dir, s.name+"-")
	if err != nil {
		return nil, err
	}
	if err := os.Chmod(dir, 0o711); err != nil { // nginx's workers run as another user
		return nil, err
	}
	port, err := freePort()
	if err != nil {
		return nil, err
	}
	cmd, err := s.command(b, dir, port)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", s.name, err)
	}
	return b.launch(s, cmd, dir, port)
}

func (b *Bench) launch(s *server, cmd *exec.Cmd, dir string, port int) (*running, error) {
	log, err := os.Create(filepath.Join(dir, "output"))
	if err != nil {
		return nil, err
	}
	defer log.Close()
	cmd.Stdout, cmd.Stderr, cmd.Dir = log, log, dir
	// Should the benchmark be killed, its servers end too.
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("%s: %w", s.name, err)
	}
	r := &running{server: s, cmd: cmd, done: make(chan struct{}), dir: dir, addr: fmt.Sprintf("127.0.0.1:%d", port)}
	go func() {
		_ = cmd.Wait()
		close(r.done)
	}()
	if err := r.await(b.ctx); err != nil {
		r.stop()
		output, _ := os.ReadFile(log.Name())
		return nil, fmt.Errorf("%s does not start: %w\n%s", s.name, err, output)
	}
	return r, nil
}

// await waits until the server accepts connections.
func (r *running) await(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		if c, err := net.Dial("tcp", r.addr); err == nil {
			return c.Close()
		}
		select {
		case <-tick.C:
		case <-r.done:
			return errors.New("it has ended")
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// stop ends the server and waits for it.
func (r *running) stop() {
	_ = r.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-r.done:
	case <-time.After(3 * time.Second):
		_ = r.cmd.Process.Kill()
		<-r.done
	}
}

func (r *running) cpu() (time.Duration, error) { return treeCPU(r.cmd.Process.Pid) }

func (r *running) memory() (int64, error) { return treeMemory(r.cmd.Process.Pid) }

// freePort returns a port of loopback that nobody listens on.
func freePort() (int, error) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	defer ln.Close()
	return ln.Addr().(*net.TCPAddr).Port, nil
}
