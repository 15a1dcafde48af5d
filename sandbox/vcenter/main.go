// Command vcenter is a vCenter simulator with the maintenance semantics of the real one; see README.md.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"
)

type options struct {
	inventory, listen, control, state, cert, key string
	parent                                       int
	check, version                               bool
}

// misuse is a mistake of whoever started us: exit code 2.
type misuse struct{ error }

func main() {
	log.SetFlags(log.Ldate | log.Ltime | log.Lmicroseconds)
	log.SetPrefix("vcenter: ")
	err := run(os.Args[1:])
	var wrong misuse
	switch {
	case err == nil, errors.Is(err, flag.ErrHelp):
	case errors.As(err, &wrong):
		log.Print(err)
		os.Exit(2)
	default:
		log.Print(err)
		os.Exit(1)
	}
}

func parse(args []string) (*options, error) {
	o := &options{}
	f := flag.NewFlagSet("vcenter", flag.ContinueOnError)
	f.StringVar(&o.inventory, "inventory", "", "the inventory, a JSON `file`; - is standard input")
	f.StringVar(&o.state, "state", "", "the `file` to write the connection data to")
	f.StringVar(&o.listen, "listen", "127.0.0.1:0", "loopback `address` of the vCenter API")
	f.StringVar(&o.control, "control", "127.0.0.1:0", "loopback `address` of the control endpoint")
	f.StringVar(&o.cert, "cert", "", "certificate, a PEM `file`; default: self-signed at every start")
	f.StringVar(&o.key, "key", "", "key of the certificate, a PEM `file`")
	f.IntVar(&o.parent, "parent", 0, "end when the process with this `pid` is gone")
	f.BoolVar(&o.check, "check", false, "only check the inventory")
	f.BoolVar(&o.version, "version", false, "print the versions")
	if err := f.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return nil, err
		}
		return nil, misuse{err}
	}
	switch {
	case o.version:
	case f.NArg() > 0:
		return nil, misuse{fmt.Errorf("%q is not expected; every setting is a flag, see --help", f.Arg(0))}
	case o.inventory == "":
		return nil, misuse{errors.New("--inventory is needed: the file that describes the hosts and VMs")}
	case o.state == "" && !o.check:
		return nil, misuse{errors.New("--state is needed: the file to write the connection data to")}
	case (o.cert == "") != (o.key == ""):
		return nil, misuse{errors.New("--cert and --key belong together: give both or neither")}
	}
	if folder, err := os.Stat(filepath.Dir(o.state)); o.state != "" && (err != nil || !folder.IsDir()) {
		return nil, misuse{fmt.Errorf("--state: there is no directory %s", filepath.Dir(o.state))}
	}
	for name, address := range map[string]string{"listen": o.listen, "control": o.control} {
		if err := onlyLoopback(name, address); err != nil {
			return nil, misuse{err}
		}
	}
	return o, nil
}

// onlyLoopback keeps a simulator with an open control endpoint off every network.
func onlyLoopback(name, address string) error {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return fmt.Errorf("--%s: %q is not an address like 127.0.0.1:0", name, address)
	}
	if ip := net.ParseIP(host); ip == nil || !ip.IsLoopback() {
		return fmt.Errorf("--%s: %q is not a loopback address; the simulator serves this machine only, use 127.0.0.1", name, host)
	}
	return nil
}

func readInventory(path string) (*Inventory, error) {
	var data []byte
	var err error
	if path == "-" {
		data, err = io.ReadAll(os.Stdin)
	} else {
		data, err = os.ReadFile(path)
	}
	if err != nil {
		return nil, misuse{fmt.Errorf("the inventory could not be read: %w", err)}
	}
	inv, err := ReadInventory(data)
	if err != nil {
		return nil, misuse{fmt.Errorf("inventory %s: %w", path, err)}
	}
	return inv, nil
}

func run(args []string) error {
	o, err := parse(args)
	if err != nil {
		return err
	}
	if o.version {
		fmt.Printf("hostler vcenter simulator, govmomi %s, vCenter API %s\n", govmomiVersion(), apiVersion)
		return nil
	}
	inv, err := readInventory(o.inventory)
	if err != nil {
		return err
	}
	if o.check {
		fmt.Println(inv.Summary())
		return nil
	}
	// Signals are taken before anything is made, so that an early SIGTERM leaves no files either.
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	if o.parent != 0 {
		go followParent(ctx, o.parent, stop)
	}
	return serve(ctx, stop, o, inv)
}

// followParent ends us when the process that started us was killed and could not do so.
func followParent(ctx context.Context, pid int, stop func()) {
	for ctx.Err() == nil {
		if err := syscall.Kill(pid, 0); errors.Is(err, syscall.ESRCH) {
			log.Printf("process %d is gone, ending", pid)
			stop()
			return
		}
		time.Sleep(time.Second)
	}
}

func serve(ctx context.Context, stop func(), o *options, inv *Inventory) error {
	began := time.Now()
	login, err := newLogin()
	if err != nil {
		return err
	}
	pair, err := certificate(o.cert, o.key)
	if err != nil {
		return misuse{err}
	}
	// The simulator keeps its datastores in a temporary directory. Beside the state file it goes with
	// the rest of a sandbox even when this process is killed and cannot remove it.
	if dir, err := filepath.Abs(filepath.Dir(o.state)); err == nil {
		_ = os.Setenv("TMPDIR", dir)
	}
	sim, err := NewSim(inv, login.user)
	if err != nil {
		return err
	}
	defer sim.Close()
	server, err := sim.listen(o.listen, pair, login)
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", o.control)
	if err != nil {
		return fmt.Errorf("the control endpoint cannot listen on %s: %w", o.control, err)
	}
	control := &http.Server{Handler: (&Control{sim: sim, stop: stop}).Handler(), ReadHeaderTimeout: 10 * time.Second}
	failed := make(chan error, 1)
	go func() { failed <- control.Serve(listener) }()
	files, err := writeState(o.state, server, listener, login, bundle(pair))
	if err != nil {
		return err
	}
	defer files.remove()
	log.Printf("serving %s on %s, control on %s, after %.1f s", inv.Summary(), server.Host, listener.Addr(), time.Since(began).Seconds())
	select {
	case <-ctx.Done():
		log.Print("asked to end")
		_ = control.Close() // the streams have no end of their own to wait for
		return nil
	case err := <-failed:
		return fmt.Errorf("the control endpoint stopped: %w", err)
	}
}
