// Command ignition says whether Ignition configs are valid, with the real validator: warnings count as errors.
//
// It reads one config per argument, or standard input for "-", and prints one line of JSON per config:
// {"file": ..., "valid": ..., "report": [...]}. It ends with 1 if any config is not valid.
package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"

	"github.com/coreos/ignition/v2/config"
)

type verdict struct {
	File   string   `json:"file"`
	Valid  bool     `json:"valid"`
	Report []string `json:"report"`
}

func read(name string) ([]byte, error) {
	if name == "-" {
		return io.ReadAll(os.Stdin)
	}
	return os.ReadFile(name)
}

// judge parses a config of any stable version; what the validator merely warns of is as wrong as what it refuses.
func judge(name string, raw []byte) verdict {
	_, report, err := config.Parse(raw)
	said := verdict{File: name, Report: []string{}}
	for _, entry := range report.Entries {
		said.Report = append(said.Report, entry.String())
	}
	if err != nil {
		said.Report = append(said.Report, err.Error())
	}
	said.Valid = err == nil && len(report.Entries) == 0
	return said
}

func main() {
	out := json.NewEncoder(os.Stdout)
	good := true
	for _, name := range os.Args[1:] {
		raw, err := read(name)
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(2)
		}
		said := judge(name, raw)
		good = good && said.Valid
		if err := out.Encode(said); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(2)
		}
	}
	if !good {
		os.Exit(1)
	}
}
