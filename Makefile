# Tidemill's commands; `make` alone lists them. Everything is set up in this folder: the Python
# environment in .venv, what Rust builds in target. Wanted are rustup's stable Rust, a C compiler and
# Python 3.10 or newer, which tools/check_machine.sh looks for.

.DEFAULT_GOAL := help
.NOTPARALLEL:
.DELETE_ON_ERROR:
.PHONY: help demo test lint test-rust test-python test-long sanitize fuzz mutants torture bench figures clean machine develop release

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/ready
INSTALL := env -u CONDA_PREFIX VIRTUAL_ENV=$(CURDIR)/$(VENV) $(BIN)/maturin develop --quiet

# Random histories that the engine is held against the reference on.
TIDEMILL_HISTORIES ?= 100000
export TIDEMILL_HISTORIES
# Crashes on simulated storage that it recovers from: of engines stepped by one thread, and of engines on threads.
TIDEMILL_CRASHES ?= 4000
export TIDEMILL_CRASHES
TIDEMILL_THREAD_CRASHES ?= 400
export TIDEMILL_THREAD_CRASHES
# After so many seconds none of these suites begins with another plan, so a slow machine runs fewer.
TIDEMILL_SECONDS ?= 150
export TIDEMILL_SECONDS

help: ## this list
	@sed -n 's/^\([a-z-]*\):[^#]*## \(.*\)/  make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 20

demo: release ## set up, and run the bank of examples/bank.py on a million events
	$(BIN)/python examples/datasets.py ledger
	$(BIN)/tidemill run examples/bank.py
	@echo "See examples/bank.py, what it wrote to examples/out/bank, and docs/tutorial.md."

test: lint test-rust test-python ## set up, and run all checks and tests

lint: $(READY) ## formats, lints, types, the order of the crates, circles of imports, assertions, names in documents, tracked files, the crates' documentation
	cargo fmt --all --check
	$(BIN)/python tools/check_crates.py
	$(BIN)/python tools/check_circles.py
	$(BIN)/python tools/check_assertions.py
	$(BIN)/python tools/check_documents.py
	$(BIN)/python tools/check_files.py
	cargo clippy --workspace --all-targets -- -D warnings
	cargo clippy -p tidemill-schedule --features counted --example shared_writes -- -D warnings
	RUSTDOCFLAGS="-D warnings" cargo doc --workspace --no-deps --quiet
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy --strict

# Of the workspace, so that other crates are compiled as for all other tests, and once.
LOOM := cargo test --workspace --test loom --features

test-rust: machine ## the crates, with as many random histories and crashes as two and a half minutes allow
	cargo test --workspace
	$(LOOM) tidemill-schedule/loom
	$(LOOM) tidemill-state/loom
	$(LOOM) tidemill-stages/loom
	$${CARGO_TARGET_DIR:-target}/debug/examples/bank > /dev/null
	$${CARGO_TARGET_DIR:-target}/debug/examples/run_bank > /dev/null

test-python: develop ## the package, the command, the examples, the snippets of the documents
	$(BIN)/pytest

test-long: machine ## a million random histories, with optimization
	TIDEMILL_HISTORIES=1000000 TIDEMILL_SECONDS=1000000 cargo test --release -p tidemill-runtime --test differential -- --nocapture

# Its memory is freed at the end by the system alone, so leaks are not looked for.
SANITIZE := RUSTFLAGS=-Zsanitizer=address ASAN_OPTIONS=detect_leaks=0 TIDEMILL_HISTORIES=2000 \
	CARGO_TARGET_DIR=$${CARGO_TARGET_DIR:-target}/sanitize

sanitize: machine ## the address sanitizer on tables and compiled code; skipped where there is no nightly toolchain
	@if cargo +nightly --version > /dev/null 2>&1; then \
		target=$$(rustc -vV | sed -n 's/^host: //p') && \
		$(SANITIZE) cargo +nightly test --target $$target -p tidemill-state -p tidemill-compile --lib --tests && \
		$(SANITIZE) cargo +nightly test --target $$target -p tidemill-runtime --test differential -- histories; \
	else echo "skipped: the address sanitizer needs a nightly toolchain (rustup toolchain install nightly)"; fi

# How long each protocol is searched, seconds; what was found is kept in target/fuzz, and searched on from.
SECONDS ?= 600
FUZZ = $${CARGO_TARGET_DIR:-target}/fuzz

fuzz: $(READY) ## both protocols of the server, under inputs that are guided by the code they reach
	$(BIN)/python fuzz/seeds.py $(FUZZ)/inputs
	RUSTC_WRAPPER=$(CURDIR)/fuzz/rustc.sh cargo build --release --manifest-path fuzz/Cargo.toml --target-dir $(FUZZ)
	for protocol in http postgres; do \
		$(FUZZ)/release/$$protocol $(FUZZ)/inputs/$$protocol -max_total_time=$(SECONDS) -max_len=4096 -timeout=60 \
			-rss_limit_mb=4096 -artifact_prefix=$(FUZZ)/$$protocol- || exit 1; \
	done

# Of one crate: all of them take days. A sample of it, SAMPLE=0/40 one in forty. Against the tests of another crate: what compiled
# code does, those of runtime see (TESTS=tidemill-runtime).
CRATE ?= txn
SAMPLE ?= 0/1
TESTS ?= tidemill-$(CRATE)

mutants: machine ## changes in a crate that tests do not see, by cargo-mutants (cargo install cargo-mutants)
	cargo mutants --package tidemill-$(CRATE) --test-package $(TESTS) --shard $(SAMPLE) --sharding round-robin --no-shuffle \
		--output $${CARGO_TARGET_DIR:-target}/mutants

# How much of it: 1 takes some forty minutes on two cores.
BUDGET ?= 1

torture: SHELL := /bin/bash
torture: .SHELLFLAGS := -o pipefail -c
torture: develop ## a million crashes on simulated storage, power cuts of a real one and more: BUDGET=10 for ten times that
	@mkdir -p target
	TIDEMILL_CRASHES=$$(($(BUDGET) * 1000000)) TIDEMILL_THREAD_CRASHES=$$(($(BUDGET) * 100000)) TIDEMILL_KILLS=$$(($(BUDGET) * 5000)) TIDEMILL_FAULTS=$$(($(BUDGET) * 100000)) \
	TIDEMILL_POWER_CUTS=$$(($(BUDGET) * 1000)) TIDEMILL_OOM_KILLS=$$(($(BUDGET) * 500)) TIDEMILL_SECONDS=1000000000 \
	cargo test --release -p tidemill-sim --test crashes -- --include-ignored --nocapture | tee target/torture.log
	TIDEMILL_SINK_SEEDS=$$(($(BUDGET) * 100)) cargo test --release -p tidemill-sim --test conformance -- --nocapture
	TIDEMILL_SERVER_KILLS=$$(($(BUDGET) * 100)) TIDEMILL_SERVER_INPUTS=$$(($(BUDGET) * 50000)) \
	$(BIN)/pytest -q python/tests/test_call_history.py python/tests/test_server_fuzz.py
	@echo "Skipped, though counted as passed above: $$(grep -o 'skipped: .*' target/torture.log || echo none)"

bench: machine ## the reports of docs/performance.md, and the workloads of the papers (WORKLOADS=sl,ob for some)
	cargo run --release -p tidemill-bench -- ledger
	cargo run --release -p tidemill-bench -- files
	cargo run --release -p tidemill-bench -- memory
	cargo run --release -p tidemill-bench -- windows
	cargo run --release -p tidemill-bench -- sessions
	cargo run --release -p tidemill-bench -- grid $(if $(WORKLOADS),--workloads $(WORKLOADS))

figures: $(READY) ## the figures of the papers, docs/figures.md and docs/windows.md; goes on where it was ended (target/figures)
	cargo run --release -p tidemill-bench -- figures $(if $(ONLY),--again --only $(ONLY))
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -r bench/requirements.txt
	$(BIN)/python bench/figures.py target/figures docs/figures docs/figures.md docs/windows.md

clean: ## remove all that was built, set up or made
	cargo clean
	rm -rf $(VENV) .mypy_cache .pytest_cache .ruff_cache python/tidemill/*.so examples/data examples/out
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# The package in .venv: for the tests unoptimized, of what the tests of the crates have compiled, so with their feature
# `planted`, which takes the place of the features in pyproject.toml; for the demo optimized.
develop: $(READY)
	$(INSTALL) --features pyo3/extension-module,planted

release: $(READY)
	$(INSTALL) --release

machine:
	@tools/check_machine.sh $(PYTHON)

$(READY): requirements-dev.txt examples/requirements.txt | machine
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV) 2>/dev/null || $(PYTHON) -m virtualenv --quiet $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -r requirements-dev.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps -r examples/requirements.txt
	touch $@
