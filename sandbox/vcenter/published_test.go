package main

import (
	"archive/zip"
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"testing"
)

func TestTheCAsOfTheShownCertificateArePublished(t *testing.T) {
	w := newWorldOf(t, gpus)
	first, err := certificate("", "")
	if err != nil {
		t.Fatal(err)
	}
	server, err := w.listen("127.0.0.1:0", first, login{"u", "p"})
	if err != nil {
		t.Fatal(err)
	}
	shown, in := fetchPublished(t, server.Host)
	want(t, "shown", bytes.Equal(shown, first.Certificate[0]), true)
	want(t, "published", bytes.Equal(in["certs/lin"], encodePEM(first.Certificate[0])), true)

	second, err := certificate("", "")
	if err != nil {
		t.Fatal(err)
	}
	key, err := x509.MarshalPKCS8PrivateKey(second.PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	files := map[string][]byte{
		"cert": encodePEM(second.Certificate[0]),
		"key":  pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: key}),
	}
	body := map[string]string{}
	for name, data := range files {
		body[name] = filepath.Join(dir, name)
		if err := os.WriteFile(body[name], data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	text, _ := json.Marshal(body)
	status, _ := w.ask("POST", "/certificate", string(text))
	want(t, "status", status, 200)
	shown, _ = fetchPublished(t, server.Host)
	want(t, "shown", bytes.Equal(shown, second.Certificate[0]), true)
	status, _ = w.ask("POST", "/certificate", `{"cert": "nowhere", "key": "nowhere"}`)
	want(t, "status", status, 400)
}

// fetchPublished is the leaf and, by directory, what the zip holds.
func fetchPublished(t *testing.T, host string) ([]byte, map[string][]byte) {
	t.Helper()
	client := &http.Client{Transport: &http.Transport{
		TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, DisableKeepAlives: true,
	}}
	answer, err := client.Get("https://" + host + publishedPath)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	data, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	archive, err := zip.NewReader(bytes.NewReader(data), int64(len(data)))
	if err != nil {
		t.Fatal(err)
	}
	in := map[string][]byte{}
	for _, file := range archive.File {
		opened, err := file.Open()
		if err != nil {
			t.Fatal(err)
		}
		in[filepath.Dir(file.Name)], err = io.ReadAll(opened)
		if err != nil {
			t.Fatal(err)
		}
	}
	return answer.TLS.PeerCertificates[0].Raw, in
}
