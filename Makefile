# `make test` installs what the tests need and runs all of them, also on a new machine.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
VENV := $(CURDIR)/.venv
SUDO := $(shell [ "$$(id -u)" = 0 ] || echo sudo)
PACKAGES := fish gcc iproute2 less libc6-dev make procps python3 python3-venv strace tmux util-linux vim-tiny zsh

.PHONY: help ready setup test test-slow check dist wheel test-install test-publish test-workflows test-rust test-memory bench-memory test-interop test-browser bench bench-compare bench-what-if deny generate clean

help: ## list the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 16

# $(call install,PACKAGES): installs missing packages of Debian.
define install
	@missing=$$(for package in $(1); do dpkg-query -W -f='$${Status}' $$package 2>/dev/null | grep -q 'ok installed' || echo $$package; done); \
	if [ -n "$$missing" ]; then \
	  $(SUDO) apt-get update -qq; \
	  DEBIAN_FRONTEND=noninteractive $(SUDO) apt-get install -y -qq --no-install-recommends $$missing >/dev/null; \
	fi
endef

ready: ## what the tests need of the machine: root, cgroups, performance counters
	@tools/preconditions.sh

setup: ## install the packages that the tests need, from Debian and PyPI
	$(call install,$(PACKAGES))

test: ready setup check test-rust test-memory test-interop test-browser test-workflows test-python test-metaflow test-r test-docs test-fleet ## everything that must pass

test-slow: ready test-pythons test-airflow test-install test-publish test-fleet-slow test-r-cran ## what takes minutes and seldom fails: other versions of Python, Airflow, installation of a release, a large fleet, the checks of `cargo publish` and CRAN

check: ## formatting, lints, docs, versions
	tools/metadata.py
	cargo fmt --all --check
	# First without tests, as users build it: the modules of the core are then private.
	cargo clippy --workspace -- -D warnings
	cargo clippy --workspace --all-targets -- -D warnings
	RUSTDOCFLAGS="-D warnings" cargo doc --workspace --no-deps --quiet

test-rust: setup ## the tests of core and command
	# A shell may start background commands with some signals ignored; the tests send these signals.
	env --default-signal=HUP,INT,QUIT,PIPE,TERM cargo test --workspace --features resource-tracker/parquet

test-memory: setup ## the memory of random jobs, beside the kernel's account
	cargo build-for-tests
	tests/memory/run.py --tracker $${CARGO_TARGET_DIR:-$(CURDIR)/target}/debug/resource-tracker --seeds 20 --seconds 3 --check

bench-memory: ## memory of random jobs and of shared pages, CPU time of the tracker, stalls of the job; about 45 minutes
	cargo build --quiet --release
	tests/memory/run.py --seeds 100
	tests/memory/run.py --seeds 100 --noise
	tests/memory/cases.py --python $(CURDIR)/target/python/python3.11/bin/python --r-library $(CURDIR)/target/r/release
	benches/cost.py
	benches/throughput.py

test-interop: setup ## recordings exchanged with the original package
	tests/interop/run.sh $(VENV)/interop

test-browser: setup ## the report in a real browser
	cargo build-for-tests
	RESOURCE_TRACKER=$${CARGO_TARGET_DIR:-$(CURDIR)/target}/debug/resource-tracker tests/browser/run

dist: setup ## what a release consists of, as far as it can be built on this machine, into dist/
	rm -rf dist
	RESOURCE_TRACKER_PROFILE=dev r/tools/vendor.sh $(CURDIR)/dist
	tools/dist.sh

# By the recipe of a release, without optimisation.
WITH_WHEEL := RESOURCE_TRACKER_WHEEL=$$(echo $(CURDIR)/target/wheel/*.whl)
wheel: setup ## the wheel that the tests install, into target/wheel/
	rm -rf target/wheel
	RESOURCE_TRACKER_PROFILE=dev tools/dist.sh --to target/wheel manylinux

test-install: dist ## wheel, source package and static program of `make dist` on systems that hold nothing else; needs root
	$(call install,debootstrap hyperfine)
	$(SUDO) tests/install/run.sh dist target/install

test-publish: ## what `cargo publish` checks, without publishing
	cargo publish --workspace --dry-run --locked --allow-dirty

test-workflows: test-browser ## the workflows, by actionlint; Node comes with test-browser
	tests/workflows/run

include python/python.mk
include python/metaflow_tests/metaflow.mk
include python/airflow_tests/airflow.mk
include r/r.mk
include tests/docs/docs.mk
include tests/fleet/fleet.mk
include tests/platforms.mk

bench: ## budgets: cost of a tick, of a run, of reading recordings
	cargo bench -p resource-tracker --bench tick
	cargo bench -p resource-tracker --bench recording
	cargo bench -p resource-tracker-cli --bench report
	benches/command.py

bench-compare: setup ## accuracy and cost beside other trackers, the tables of docs/accuracy.md; needs root, about 12 minutes after the builds
	cargo build --quiet --release --package resource-tracker-cli
	tools/dist.sh --to target/wheel-release manylinux
	python3 -m pip install --quiet --no-deps --upgrade --target target/compare target/wheel-release/*.whl
	mkdir -p target/r/release
	CARGO_TARGET_DIR=$(CURDIR)/target R CMD INSTALL --clean --no-docs --library=$(CURDIR)/target/r/release r
	benches/compare/run.py

bench-what-if: ## predicted against measured time under CPU quotas; needs root, about 2 minutes
	benches/what_if.py

deny: ## licences and sources of the dependencies (installs cargo-deny)
	command -v cargo-deny >/dev/null || cargo install --locked --quiet cargo-deny
	cargo deny check bans licenses sources

generate: ## files that are generated from the code
	UPDATE_GENERATED=1 cargo test -p resource-tracker --test catalog_data files
	UPDATE_GENERATED=1 cargo test -p resource-tracker --features parquet --lib -- docs_page policy
	UPDATE_GENERATED=1 cargo test -p resource-tracker --test hosts golden
	UPDATE_GENERATED=1 cargo test -p resource-tracker --test schema
	UPDATE_GENERATED=1 cargo test -p resource-tracker-cli --bin resource-tracker docs_page
	INSTA_UPDATE=always cargo test -p resource-tracker-cli --test output --test check

clean:
	cargo clean
	rm -rf $(VENV)
