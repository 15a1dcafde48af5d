package main

import (
	"archive/zip"
	"bytes"
	"crypto/sha1"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net/http"
	"sync"
)

// Where a vCenter publishes the CAs it trusts, without a login.
const publishedPath = "/certs/download.zip"

// shown is the certificate that clients get now.
type shown struct {
	mu   sync.Mutex
	pair *tls.Certificate
}

func (s *shown) get(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.pair, nil
}

// config has no certificates of its own: with one, a client that names no host would not be asked about.
func (s *shown) config() *tls.Config {
	return &tls.Config{GetCertificate: s.get, NextProtos: []string{"http/1.1"}}
}

func (s *shown) set(pair *tls.Certificate) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pair = pair
}

// publish answers with every CA of the present chain, as a zip of PEM files.
func (s *shown) publish(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodGet {
		http.Error(w, "only GET", http.StatusMethodNotAllowed)
		return
	}
	pair, _ := s.get(nil)
	data, err := published(pair.Certificate)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/zip")
	_, _ = w.Write(data) // the client may have gone
}

func published(chain [][]byte) ([]byte, error) {
	var out bytes.Buffer
	archive := zip.NewWriter(&out)
	for _, der := range chain {
		one, err := x509.ParseCertificate(der)
		if err != nil {
			return nil, err
		}
		if !one.IsCA {
			continue
		}
		// A real one is named by OpenSSL's hash of the subject; here it is only eight digits of that length.
		name := fmt.Sprintf("%x", sha1.Sum(one.RawSubject))[:8]
		for _, path := range []string{"certs/lin/" + name + ".0", "certs/mac/" + name + ".0", "certs/win/" + name + ".0.crt"} {
			file, err := archive.Create(path)
			if err != nil {
				return nil, err
			}
			if _, err := file.Write(encodePEM(der)); err != nil {
				return nil, err
			}
		}
	}
	if err := archive.Close(); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}

// postCertificate replaces the certificate, as a renewal or an administrator does.
func (c *Control) postCertificate(r *http.Request) (int, any, error) {
	var body struct {
		Cert string `json:"cert"`
		Key  string `json:"key"`
	}
	if err := readBody(r, &body); err != nil {
		return 0, nil, err
	}
	if body.Cert == "" || body.Key == "" {
		return 0, nil, refuse(http.StatusBadRequest, "cert and key are needed: files in PEM form")
	}
	pair, err := certificate(body.Cert, body.Key)
	if err != nil {
		return 0, nil, refuse(http.StatusBadRequest, "%v", err)
	}
	if err := c.sim.api.renew(pair); err != nil {
		return 0, nil, err
	}
	return http.StatusOK, map[string]bool{"ok": true}, nil
}
