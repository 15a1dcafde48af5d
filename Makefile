# Two commands: `make run` and `make test`. The rest is for the inner loop.
SHELL := /bin/bash
# A linter that fails before `| tail` fails the target.
.SHELLFLAGS := -o pipefail -c
PYTHON ?= python3
BIN := .venv/bin

.DEFAULT_GOAL := help
.PHONY: help env lock run test test-full check lint types unit judges judges-lock contracts bench chart image provider release-check wheels-check clean

help: ## what can be made
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

env: .venv/.made ## only the environment: .venv with hostler in it

.venv/.made: requirements.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "Hostler needs Python 3.11 or newer; set PYTHON=..."; exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -m venv .venv || { echo "python3 -m venv failed; on Debian: apt-get install python3-venv"; exit 1; }
	@echo "env: installing locked dependencies"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements.lock
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	@touch $@

lock: ## resolve the dependencies again (needs uv)
	uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-annotate --no-header --extra dev -o requirements.lock pyproject.toml

judges: env .venv-judges/.made ## other projects' linters: bandit, zizmor, actionlint, shellcheck, check-jsonschema, helm lint, kube-score
	@$(BIN)/python -m hostler.ship.judges

.venv-judges/.made: judges/judges.lock
	@test -x .venv-judges/bin/python || $(PYTHON) -m venv .venv-judges
	@echo "judges: installing judges/judges.lock"
	@.venv-judges/bin/python -m pip install --quiet --disable-pip-version-check --only-binary=:all: --require-hashes -r judges/judges.lock
	@touch $@

judges-lock: ## resolve the judges again (needs uv and go)
	uv pip compile --quiet --universal --upgrade --python-version 3.11 --generate-hashes --no-emit-index-url --no-annotate --no-header -o judges/judges.lock judges/judges.in
	cd judges && go get tool && go mod tidy

run: env ## the sandbox with a small mixed fleet and the operator on it; with KUBECONFIG set, that cluster, dry-run first
	@$(BIN)/hostler demo

test: env ## everything: lint, types, pure tests, real tests on three sandboxes
	@$(MAKE) --no-print-directory -j2 --output-sync=target types lint
	$(BIN)/hostler sandbox build --with capi
	$(BIN)/pytest -m "not full" -n 3 --dist loadgroup

test-full: env ## every exhaustive variant too
	@$(MAKE) --no-print-directory -j2 --output-sync=target types lint
	$(BIN)/hostler sandbox build --with capi
	$(BIN)/pytest -n 3 --dist loadgroup

check: env ## the inner loop, under a minute
	@$(MAKE) --no-print-directory -j2 --output-sync=target unit types lint

lint:
	$(BIN)/ruff format --check --quiet .
	$(BIN)/ruff check --quiet .
	$(BIN)/lint-imports --verbose 2>/dev/null | tail -n 3 || $(BIN)/lint-imports

types:
	$(BIN)/mypy

unit:
	HOSTLER_QUICK=1 $(BIN)/pytest -q -m "not full" -n 2 tests/unit

bench: env ## benchmarks; writes bench/RESULTS.md
	$(BIN)/python -m bench.runtime
	$(BIN)/python -m bench.maintenance
	$(BIN)/python -m bench.scale
	$(BIN)/python -m bench.metal
	$(BIN)/python -m bench.reclaim
	$(BIN)/python -m bench.join
	$(BIN)/python -m bench.inventory
	$(BIN)/python -m bench.inventory_history

chart: env ## what of chart/ and docs/ is made from tables in the code
	$(BIN)/python -m hostler.ship.chart

contracts: env ## tests/contracts/snapshots: accept, on purpose, what others will see changed
	$(BIN)/python -m tests.contracts

image: env ## dist/image: an OCI layout of this environment, without a container runtime
	rm -rf dist/image
	$(BIN)/python -m hostler.ship.image dist/image

provider: env ## dist/infrastructure-hostler-metal3: a local repository for clusterctl; IMAGE=REGISTRY/hostler
	$(BIN)/python -m hostler.ship.components dist $(IMAGE)

release-check: env ## what of a release needs no network: TAG=vX.Y.Z, IMAGE=REGISTRY/hostler, SOURCE=https://github.com/OWNER/REPOSITORY
	$(BIN)/python -m hostler.ship.release "$(TAG)" dist $(IMAGE) $(if $(IMAGE),$(SOURCE))
	@$(MAKE) --no-print-directory image
	helm=$$($(BIN)/python -c 'from hostler.sandbox.helmtool import find_helm; print(find_helm())') && \
	$$helm lint --strict chart && $$helm package chart --destination dist

wheels-check: env ## that every locked package exists for amd64 and arm64, and our wheel runs from them (asks PyPI)
	for machine in x86_64 aarch64; do \
	  $(BIN)/pip download --quiet --no-deps --only-binary=:all: --require-hashes --dest dist/wheels-$$machine \
	    --platform manylinux2014_$$machine --platform manylinux_2_28_$$machine -r requirements.lock || exit 1; \
	done
	$(BIN)/pytest -q tests/real/test_chart_plugin.py

clean:
	rm -rf .venv .venv-judges dist build .mypy_cache .ruff_cache .pytest_cache .hypothesis
