package main

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"
)

// BenchmarkBigFleet: go test -run - -bench BigFleet -benchtime 1x
// 500 hosts and 5,000 VMs: the time to start, and from an Enter task to a client that watches everything.
func BenchmarkBigFleet(b *testing.B) {
	b.Setenv("TMPDIR", b.TempDir())
	inv := bigFleet(b)
	for b.Loop() {
		began := time.Now()
		s, err := NewSim(inv, "bench")
		if err != nil {
			b.Fatal(err)
		}
		b.ReportMetric(time.Since(began).Seconds(), "s/start")
		w := &world{Sim: s, t: &testing.T{}}
		client := w.watch(w.everything())
		began = time.Now()
		for client.next(0) != nil {
		}
		b.ReportMetric(time.Since(began).Seconds(), "s/first-look")
		began = time.Now()
		const rounds = 20
		for i := range rounds {
			w.enter(fmt.Sprintf("esx-%02d-%02d", i, i%20), 0, false)
			for kindsOf(client.next(1))["enter Task"] == 0 {
			}
		}
		b.ReportMetric(time.Since(began).Seconds()*1000/rounds, "ms/enter-to-client")
		s.Close()
	}
}

func bigFleet(b *testing.B) *Inventory {
	dc := map[string]any{"name": "dc"}
	var clusters, vms []any
	for c := range 25 {
		var hosts []any
		for h := range 20 {
			host := fmt.Sprintf("esx-%02d-%02d", c, h)
			hosts = append(hosts, map[string]any{"name": host, "devices": []any{map[string]any{"id": "0000:3b:00.0", "vendor": "10de", "device": "20b5"}}})
			for v := range 10 {
				vm := map[string]any{"name": fmt.Sprintf("%s-vm-%d", host, v), "host": host}
				if v == 0 {
					vm["devices"] = []any{map[string]any{"kind": "fixed", "id": "0000:3b:00.0"}}
				}
				vms = append(vms, vm)
			}
		}
		clusters = append(clusters, map[string]any{"name": fmt.Sprintf("cluster-%02d", c), "hosts": hosts})
	}
	dc["clusters"], dc["vms"] = clusters, vms
	text, err := json.Marshal(map[string]any{"datacenters": []any{dc}})
	if err != nil {
		b.Fatal(err)
	}
	inv, err := ReadInventory(text)
	if err != nil {
		b.Fatal(err)
	}
	return inv
}
