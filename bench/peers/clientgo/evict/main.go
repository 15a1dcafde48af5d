// A bare eviction loop of client-go, as the peer in bench/scale.py: one informer over pods, one goroutine per node that
// evicts what runs there and waits until the node is empty. No budgets, no order, no state: what is left out is Hostler.
//
// It prints one JSON line when its informer has synced, begins at the first line on stdin, and prints another at the end.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
)

func fail(err error) {
	fmt.Fprintln(os.Stderr, "peer:", err)
	os.Exit(1)
}

func report(begun time.Time, evicted int64) {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		fail(err)
	}
	cpu := float64(usage.Utime.Nano()+usage.Stime.Nano()) / 1e9
	line, err := json.Marshal(map[string]any{"cpu": cpu, "seconds": time.Since(begun).Seconds(), "evicted": evicted})
	if err != nil {
		fail(err)
	}
	fmt.Println(string(line))
}

func main() {
	kubeconfig := flag.String("kubeconfig", "", "the API server")
	nodes := flag.String("nodes", "", "the nodes to empty, separated by commas")
	flag.Parse()
	config, err := clientcmd.BuildConfigFromFlags("", *kubeconfig)
	if err != nil {
		fail(err)
	}
	config.ContentType = "application/vnd.kubernetes.protobuf"
	config.AcceptContentTypes = "application/vnd.kubernetes.protobuf,application/json"
	config.QPS, config.Burst = 1000, 1000
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		fail(err)
	}
	factory := informers.NewSharedInformerFactory(client, 0)
	pods := factory.Core().V1().Pods().Informer()
	byNode := cache.Indexers{"node": func(object any) ([]string, error) {
		return []string{object.(*corev1.Pod).Spec.NodeName}, nil
	}}
	if err := pods.AddIndexers(byNode); err != nil {
		fail(err)
	}
	ctx := context.Background()
	factory.Start(ctx.Done())
	factory.WaitForCacheSync(ctx.Done())
	report(time.Now(), 0)
	bufio.NewScanner(os.Stdin).Scan()

	var evicted atomic.Int64
	var all sync.WaitGroup
	begun := time.Now()
	for _, node := range strings.Split(*nodes, ",") {
		all.Go(func() {
			found, err := pods.GetIndexer().ByIndex("node", node)
			if err != nil {
				fail(err)
			}
			for _, object := range found {
				pod := object.(*corev1.Pod)
				about := metav1.ObjectMeta{Name: pod.Name, Namespace: pod.Namespace}
				eviction := &policyv1.Eviction{ObjectMeta: about}
				err := client.PolicyV1().Evictions(pod.Namespace).Evict(ctx, eviction)
				if err != nil && !apierrors.IsNotFound(err) {
					fail(err)
				}
				evicted.Add(1)
			}
			for {
				left, err := pods.GetIndexer().ByIndex("node", node)
				if err != nil {
					fail(err)
				}
				if len(left) == 0 {
					return
				}
				time.Sleep(100 * time.Millisecond)
			}
		})
	}
	all.Wait()
	report(begun, evicted.Load())
}
