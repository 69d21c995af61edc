package cachebench

import (
	"bufio"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
)

//go:embed jdk/JdkCache.java
var jdkCache []byte

// A process is a worker that takes commands.
type process struct {
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Scanner
}

// start runs the worker for the named cache: this program again, or the Java one.
func (b *Bench) start(name string) (*process, error) {
	if strings.HasPrefix(name, "jdk-") {
		return b.startJDK()
	}
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	return startProcess(exec.CommandContext(b.ctx, self, "-worker"))
}

func (b *Bench) startJDK() (*process, error) {
	const exports = "--add-exports=java.base/sun.security.util=ALL-UNNAMED"
	java, err := exec.LookPath("java")
	if err != nil {
		return nil, fmt.Errorf("the comparison with the JDK needs java 17 (Debian package openjdk-17-jdk-headless): %w", err)
	}
	class := filepath.Join(b.dir, "JdkCache.class")
	if _, err := os.Stat(class); err != nil {
		source := filepath.Join(b.dir, "JdkCache.java")
		if err := os.WriteFile(source, jdkCache, 0o600); err != nil {
			return nil, err
		}
		out, err := exec.CommandContext(b.ctx, "javac", exports, "-d", b.dir, source).CombinedOutput()
		if err != nil {
			return nil, fmt.Errorf("javac (Debian package openjdk-17-jdk-headless): %w\n%s", err, out)
		}
	}
	return startProcess(exec.CommandContext(b.ctx, java, exports, "-Xmx8g", "-cp", b.dir, "JdkCache"))
}

func startProcess(cmd *exec.Cmd) (*process, error) {
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	return &process{cmd, in, bufio.NewScanner(out)}, nil
}

// do sends a command and returns the numbers of the answer.
func (p *process) do(format string, args ...any) ([]float64, error) {
	line := fmt.Sprintf(format, args...)
	if _, err := fmt.Fprintln(p.in, line); err != nil {
		return nil, fmt.Errorf("%s: %w", line, err)
	}
	if !p.out.Scan() {
		return nil, errors.Join(fmt.Errorf("%s: no answer", line), p.out.Err())
	}
	if p.out.Text() == "ok" {
		return nil, nil
	}
	var numbers []float64
	for _, f := range strings.Fields(p.out.Text()) {
		n, err := strconv.ParseFloat(f, 64)
		if err != nil {
			return nil, fmt.Errorf("%s: answered %q", line, p.out.Text())
		}
		numbers = append(numbers, n)
	}
	return numbers, nil
}

// stop ends the process and waits for it.
func (p *process) stop() error {
	if err := p.in.Close(); err != nil {
		return err
	}
	return p.cmd.Wait()
}
