package main

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"runtime/debug"
	"strconv"
	"strings"
	"time"

	"github.com/vmware/govmomi/vim25/types"
)

type login struct{ user, password string }

// newLogin takes the login from the environment or makes one up. The names are our own: VCENTER_USER
// and VCENTER_PASSWORD may hold the login of a real vCenter, which must not end up in a sandbox file.
func newLogin() (login, error) {
	l := login{os.Getenv("HOSTLER_SANDBOX_VCENTER_USER"), os.Getenv("HOSTLER_SANDBOX_VCENTER_PASSWORD")}
	random := make([]byte, 20)
	if _, err := rand.Read(random); err != nil {
		return l, fmt.Errorf("no random numbers: %w", err)
	}
	if l.user == "" {
		l.user = "hostler-" + hex.EncodeToString(random[:4]) + "@vsphere.local"
	}
	if l.password == "" {
		l.password = hex.EncodeToString(random[4:])
	}
	return l, nil
}

// certificate loads the given pair or makes a self-signed one.
func certificate(certFile, keyFile string) (*tls.Certificate, error) {
	if certFile != "" {
		pair, err := tls.LoadX509KeyPair(certFile, keyFile)
		if err != nil {
			return nil, fmt.Errorf("--cert and --key: %w", err)
		}
		return &pair, nil
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("no key could be made: %w", err)
	}
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		return nil, fmt.Errorf("no random numbers: %w", err)
	}
	template := &x509.Certificate{
		SerialNumber:          serial,
		Subject:               pkix.Name{CommonName: "hostler sandbox vcenter"},
		NotBefore:             time.Now().Add(-time.Hour),
		NotAfter:              time.Now().AddDate(1, 0, 0),
		KeyUsage:              x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		ExtKeyUsage:           []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		BasicConstraintsValid: true,
		IsCA:                  true, // Python's ssl trusts a self-signed server only as its own CA
		DNSNames:              []string{"localhost"},
		IPAddresses:           []net.IP{net.IPv4(127, 0, 0, 1), net.IPv6loopback},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		return nil, fmt.Errorf("no certificate could be made: %w", err)
	}
	return &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, nil
}

// bundle is what clients should trust: the end of the chain.
func bundle(pair *tls.Certificate) []byte {
	return encodePEM(pair.Certificate[len(pair.Certificate)-1])
}

func encodePEM(der []byte) []byte {
	var out bytes.Buffer
	_ = pem.Encode(&out, &pem.Block{Type: "CERTIFICATE", Bytes: der}) // a buffer takes everything
	return out.Bytes()
}

// listen starts the SOAP API. The simulator panics where it cannot listen; a user gets a sentence.
func (s *Sim) listen(address string, pair *tls.Certificate, l login) (u *url.URL, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("the vCenter API cannot listen on %s: %v", address, p)
		}
	}()
	service := s.model.Service
	shown := &shown{pair: pair}
	service.TLS = &tls.Config{Certificates: []tls.Certificate{*pair}}
	service.Listen = &url.URL{Host: address, User: url.UserPassword(l.user, l.password)}
	s.reg.SessionManager().ValidLogin = func(req *types.Login) bool {
		return s.sessions.count(req.UserName == l.user && req.Password == l.password)
	}
	server := service.NewServer()
	// From here on the port is ours: the stock server has no way to go and come back.
	a := &api{address: server.Listener.Addr().String(), handler: server.Config.Handler, tls: shown.config(), shown: shown}
	_ = server.Listener.Close()
	if err := a.open(); err != nil {
		return nil, fmt.Errorf("the vCenter API cannot listen on %s: %w", address, err)
	}
	s.api = a
	return server.URL, nil
}

type stateFile struct {
	Host     string `json:"host"`
	Port     int    `json:"port"`
	User     string `json:"user"`
	Password string `json:"password"`
	URL      string `json:"url"`
	CABundle string `json:"ca_bundle"`
	Control  string `json:"control"`
	PID      int    `json:"pid"`
}

type writtenFiles []string

func (w writtenFiles) remove() {
	for _, f := range w {
		_ = os.Remove(f) // gone already is as good
	}
}

// writeState tells where we are; the file appears only when everything in it is true.
func writeState(path string, server *url.URL, control net.Listener, l login, caPEM []byte) (writtenFiles, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return nil, fmt.Errorf("--state: %w", err)
	}
	ca := strings.TrimSuffix(path, ".json") + "-ca.pem"
	port, err := strconv.Atoi(server.Port())
	if err != nil {
		return nil, fmt.Errorf("the simulator has no port: %w", err)
	}
	state := stateFile{
		Host: server.Hostname(), Port: port, User: l.user, Password: l.password,
		URL:      (&url.URL{Scheme: "https", Host: server.Host, Path: server.Path}).String(),
		CABundle: ca, Control: "http://" + control.Addr().String(), PID: os.Getpid(),
	}
	text, err := json.MarshalIndent(state, "", "  ")
	if err != nil {
		return nil, err
	}
	if err := writeAtomically(ca, caPEM); err != nil {
		return nil, err
	}
	if err := writeAtomically(path, append(text, '\n')); err != nil {
		return nil, err
	}
	return writtenFiles{path, ca}, nil
}

// writeAtomically uses CreateTemp for its mode, 0600 from the first moment on.
func writeAtomically(path string, data []byte) error {
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+"-*")
	if err != nil {
		return fmt.Errorf("%s cannot be written: %w", path, err)
	}
	_, err = f.Write(data)
	if closing := f.Close(); err == nil {
		err = closing
	}
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		_ = os.Remove(f.Name())
		return fmt.Errorf("%s cannot be written: %w", path, err)
	}
	return nil
}

func govmomiVersion() string {
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, m := range info.Deps {
			if m.Path == "github.com/vmware/govmomi" {
				return m.Version
			}
		}
	}
	return "unknown"
}
