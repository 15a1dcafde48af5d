// The sandbox's control plane: several real programs in one file, chosen by the name it is called by
// (a link named kube-apiserver) or by its first argument (`controlplane kube-apiserver ...`).
//
// One file, because the programs share nearly all of their packages: apart they would be six times as large.
package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	_ "time/tzdata" // CronJobs name time zones; the machine may have no zone files

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"go.etcd.io/etcd/server/v3/etcdmain"
	_ "k8s.io/client-go/plugin/pkg/client/auth" // kubectl's exec and OIDC plugins
	"k8s.io/component-base/cli"
	"k8s.io/component-base/logs"
	_ "k8s.io/component-base/logs/json/register"          // --logging-format=json
	_ "k8s.io/component-base/metrics/prometheus/clientgo" // client-go's metrics
	_ "k8s.io/component-base/metrics/prometheus/version"  // kubernetes_build_info
	kubectl "k8s.io/kubectl/pkg/cmd"
	kubectlutil "k8s.io/kubectl/pkg/cmd/util"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	controllermanager "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
	kwokconfig "sigs.k8s.io/kwok/pkg/config"
	kwok "sigs.k8s.io/kwok/pkg/kwok/cmd"
	kwoklog "sigs.k8s.io/kwok/pkg/log"
	"sigs.k8s.io/kwok/pkg/utils/signals"
)

// programs maps the name of each program to its main function, which returns the exit code.
var programs = map[string]func() int{
	"etcd":                    runEtcd,
	"kube-apiserver":          component(apiserver.NewAPIServerCommand),
	"kube-controller-manager": component(controllermanager.NewControllerManagerCommand),
	"kube-scheduler":          component(func() *cobra.Command { return scheduler.NewSchedulerCommand() }),
	"kubectl":                 runKubectl,
	"kwok":                    runKwok,
}

func main() {
	name := filepath.Base(os.Args[0])
	run, known := programs[name]
	if !known && len(os.Args) > 1 {
		name = os.Args[1]
		run, known = programs[name]
		os.Args = os.Args[1:]
	}
	if !known {
		fmt.Fprintf(os.Stderr, "Say which program to run: %s.\n", strings.Join(names(), ", "))
		os.Exit(2)
	}
	os.Exit(run())
}

func names() []string {
	known := make([]string, 0, len(programs))
	for name := range programs {
		known = append(known, name)
	}
	slices.Sort(known)
	return known
}

// component wraps a Kubernetes component. Its command is made only when it is the one to run, because making
// one registers flags and metrics in places that all components share.
func component(newCommand func() *cobra.Command) func() int {
	return func() int { return cli.Run(newCommand()) }
}

func runEtcd() int {
	etcdmain.Main(os.Args)
	return 0
}

func runKubectl() int {
	// As kubectl's own main does: verbosity counts while the command is still being put together.
	if _, err := logs.GlogSetter(kubectl.GetLogVerbosity(os.Args)); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	if err := cli.RunNoErrOutput(kubectl.NewDefaultKubectlCommand()); err != nil {
		kubectlutil.CheckErr(err) // prints as kubectl prints, and exits
	}
	return 0
}

func runKwok() int {
	// component-base has put its own --version on the process-wide flag set, and kwok's command defines one too:
	// with the shared set kwok would panic on the flag defined twice.
	pflag.CommandLine = pflag.NewFlagSet("kwok", pflag.ExitOnError)

	flags := pflag.NewFlagSet("global", pflag.ContinueOnError)
	flags.ParseErrorsAllowlist.UnknownFlags = true
	flags.Usage = func() {}

	ctx, logger := kwoklog.InitFlags(signals.SetupSignalContext(), flags)
	ctx, err := kwokconfig.InitFlags(ctx, flags)
	if err != nil {
		logger.Error("The kwok configuration is not usable", "err", err)
		return 1
	}
	command := kwok.NewCommand(ctx)
	command.PersistentFlags().AddFlagSet(flags)
	if err := command.ExecuteContext(ctx); err != nil {
		logger.Error("kwok ended", "err", err)
		return 1
	}
	return 0
}
