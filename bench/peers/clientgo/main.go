// A client-go informer over nodes and pods with the indexes Hostler keeps, as the peer in bench/runtime.py.
//
// It prints one JSON line when it has synced and one for every line it reads on stdin: CPU seconds, resident memory and
// handler calls so far. Nothing else happens here, so that what is measured is the informer alone.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"runtime/debug"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
)

func fail(err error) {
	fmt.Fprintln(os.Stderr, "peer:", err)
	os.Exit(1)
}

func residentKiB() int {
	text, err := os.ReadFile("/proc/self/status")
	if err != nil {
		fail(err)
	}
	for line := range strings.SplitSeq(string(text), "\n") {
		if rest, ok := strings.CutPrefix(line, "VmRSS:"); ok {
			kib, err := strconv.Atoi(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(rest), "kB")))
			if err != nil {
				fail(err)
			}
			return kib
		}
	}
	fail(fmt.Errorf("no VmRSS in /proc/self/status"))
	return 0
}

func cpuSeconds() float64 {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		fail(err)
	}
	return float64(usage.Utime.Nano()+usage.Stime.Nano()) / 1e9
}

func main() {
	kubeconfig := flag.String("kubeconfig", "", "the API server to watch")
	content := flag.String("content", "json", "json (what custom resources are read with) or protobuf (built-in kinds)")
	kinds := flag.String("kinds", "nodes,pods", "what to watch")
	flag.Parse()

	config, err := clientcmd.BuildConfigFromFlags("", *kubeconfig)
	if err != nil {
		fail(err)
	}
	if *content == "json" {
		config.ContentType = "application/json"
		config.AcceptContentTypes = "application/json"
	} else {
		config.ContentType = "application/vnd.kubernetes.protobuf"
		config.AcceptContentTypes = "application/vnd.kubernetes.protobuf,application/json"
	}
	// No limit of its own on requests: the informers make three.
	config.QPS, config.Burst = 1000, 1000
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		fail(err)
	}

	var events atomic.Int64
	handler := cache.ResourceEventHandlerFuncs{
		AddFunc:    func(any) { events.Add(1) },
		UpdateFunc: func(any, any) { events.Add(1) },
		DeleteFunc: func(any) { events.Add(1) },
	}
	factory := informers.NewSharedInformerFactory(client, 0)
	byNode := cache.Indexers{"node": func(object any) ([]string, error) {
		return []string{object.(*corev1.Pod).Spec.NodeName}, nil
	}}
	byOwner := cache.Indexers{"owner": func(object any) ([]string, error) {
		uids := []string{}
		for _, owner := range object.(*corev1.Pod).OwnerReferences {
			uids = append(uids, string(owner.UID))
		}
		return uids, nil
	}}
	if strings.Contains(*kinds, "pods") {
		pods := factory.Core().V1().Pods().Informer()
		for _, index := range []cache.Indexers{byNode, byOwner} {
			if err := pods.AddIndexers(index); err != nil {
				fail(err)
			}
		}
		if _, err := pods.AddEventHandler(handler); err != nil {
			fail(err)
		}
	}
	if strings.Contains(*kinds, "nodes") {
		if _, err := factory.Core().V1().Nodes().Informer().AddEventHandler(handler); err != nil {
			fail(err)
		}
	}

	started := time.Now()
	factory.Start(context.Background().Done())
	factory.WaitForCacheSync(context.Background().Done())
	report := func(word string) {
		line, err := json.Marshal(map[string]any{
			"word": word, "cpu": cpuSeconds(), "rss_kib": residentKiB(), "events": events.Load(),
			"seconds": time.Since(started).Seconds(),
		})
		if err != nil {
			fail(err)
		}
		fmt.Println(string(line))
	}
	report("synced")
	input := bufio.NewScanner(os.Stdin)
	for input.Scan() {
		if input.Text() == "settle" {
			// The kindest reading of a garbage-collected heap: what is left after giving all it can back.
			debug.FreeOSMemory()
		}
		report(input.Text())
	}
}
