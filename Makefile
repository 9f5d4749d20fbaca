# Tidemill's commands; `make` alone lists them. Everything is set up in this folder: the Python
# environment in .venv, what Rust builds in target. Wanted are rustup's stable Rust, a C compiler and
# Python 3.10 or newer, which tools/check_machine.sh looks for.

.DEFAULT_GOAL := help
.NOTPARALLEL:
.DELETE_ON_ERROR:
.PHONY: help demo demo-kafka test lint test-rust test-python test-long sanitize fuzz mutants planted torture soak bench figures clean wheel test-wheel test-package image site machine develop release

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
# After so many seconds none of these suites begins with another plan, if it has had its least number.
TIDEMILL_SECONDS ?= 45
export TIDEMILL_SECONDS

help: ## this list
	@sed -n 's/^\([a-z-]*\):[^#]*## \(.*\)/  make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 20

demo: release ## set up, and run the bank of examples/bank.py on a million events
	$(BIN)/python examples/datasets.py ledger
	$(BIN)/tidemill run examples/bank.py
	@echo "See examples/bank.py, what it wrote to examples/out/bank, and docs/tutorial.md."

demo-kafka: develop ## a bank from topic to topic on a broker of Kafka that is begun for it, killed in between, checked at the end
	$(BIN)/python tools/demo_kafka.py target/demo-kafka

test: ## set up, and run all checks and tests; prints what each part took
	@tools/run_parts.sh lint test-rust test-python test-package site

lint: $(READY) ## formats, lints, types, the order of the crates, circles of imports, assertions, comments, names in documents, tracked files, planted bugs, the crates' documentation
	cargo fmt --all --check
	$(BIN)/python tools/check_crates.py
	$(BIN)/python tools/check_circles.py
	$(BIN)/python tools/check_assertions.py
	$(BIN)/python tools/check_comments.py
	$(BIN)/python tools/check_documents.py
	$(BIN)/python tools/check_files.py
	$(BIN)/python tools/check_names.py
	$(BIN)/python tools/check_planted.py
	$(BIN)/python tools/check_publish.py
	$(BIN)/python tools/check_licences.py
	@if cargo deny --version > /dev/null 2>&1; then cargo deny check; \
	else echo "skipped: advisories of dependencies need cargo-deny (cargo install cargo-deny)"; fi
	cargo clippy --workspace --all-targets -- -D warnings
	cargo clippy -p tidemill-schedule --features counted --example shared_writes -- -D warnings
	RUSTDOCFLAGS="-D warnings" cargo doc --workspace --no-deps --quiet
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy --strict

LOOM := tidemill-schedule/loom,tidemill-state/loom,tidemill-stages/loom

test-rust: machine ## the crates, with as many random histories and crashes as 45 seconds each allow
	cargo test --workspace
	cargo test --workspace --test loom --features $(LOOM)
	$${CARGO_TARGET_DIR:-target}/debug/examples/bank > /dev/null
	$${CARGO_TARGET_DIR:-target}/debug/examples/run_bank > /dev/null

test-python: develop ## the package, the command, the examples, the snippets of the documents; by two processes, as tests mostly wait
	$(BIN)/pytest --numprocesses 2 --dist loadfile --known-skips

test-long: develop ## a million random histories, with optimization; ten thousand statements and messages against a server
	TIDEMILL_HISTORIES=1000000 TIDEMILL_SECONDS=1000000 cargo test --release -p tidemill-runtime --test differential -- --nocapture
	TIDEMILL_STATEMENTS=10000 TIDEMILL_MESSAGES=10000 $(BIN)/pytest -q -s python/tests/test_statements.py python/tests/test_messages.py

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

planted: $(READY) ## bugs that are planted in a copy of the tree: each is found by its test, which passes without it (BUGS=txn for some)
	$(BIN)/python tools/plant.py $(BUGS)

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

# An hour, or as long as is said: make soak SECONDS=60.
soak: SECONDS = 3600
soak: develop ## a server under attack and kills for SECONDS, an hour by default, beside honest clients: what they get and keep
	$(BIN)/python python/tests/soak.py --seconds $(SECONDS)

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

# Of this system by default; for others, such as aarch64-unknown-linux-gnu and x86_64-unknown-linux-musl, zig is compiler and
# linker, and rustup has what Rust needs: rustup target add TARGET.
TARGET ?= $(shell rustc -vV | sed -n 's/^host: //p')
# As zig names it, with the least C library. librdkafka asks for a C compiler by CC alone, and would find what this system has; its list
# of exported symbols has some that it does not define.
ZIG_TARGET = $(subst -unknown,,$(TARGET))$(if $(findstring musl,$(TARGET)),,.2.17)
SYSTEM = $(if $(findstring musl,$(TARGET)),musllinux_1_2,manylinux_2_17)
WHEELS = $${CARGO_TARGET_DIR:-target}/wheels

wheel: $(READY) ## the package to install, optimized and stripped, in target/wheels: TARGET=aarch64-unknown-linux-gnu for another system
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -r requirements-wheel.txt
	rm -rf $(WHEELS)
	$(BIN)/python tools/notices.py python/tidemill/THIRD-PARTY.txt
	env -u CONDA_PREFIX VIRTUAL_ENV=$(CURDIR)/$(VENV) PATH=$(CURDIR)/$(BIN):$$PATH HOST_CC=cc LDFLAGS=-Wl,--undefined-version \
		CC="$(CURDIR)/$(BIN)/python -m ziglang cc -target $(ZIG_TARGET)" \
		$(BIN)/maturin build --zig --compatibility $(SYSTEM) --target $(TARGET) --out $(WHEELS)

test-wheel: wheel ## that package in an empty environment: its size, what it takes to install, the bank of README.md
	$(BIN)/python tools/try_wheel.py $(WHEELS)

# As the tests have it: compiled for them, with their feature, so nothing is compiled anew.
test-package: develop ## the package as the tests have compiled it, in an empty environment: what it takes to install, the bank of README.md
	$(BIN)/python tools/notices.py python/tidemill/THIRD-PARTY.txt
	rm -rf $(WHEELS)-unoptimized
	env -u CONDA_PREFIX VIRTUAL_ENV=$(CURDIR)/$(VENV) $(BIN)/maturin build --quiet --profile dev --strip --compatibility linux \
		--features pyo3/extension-module,planted --out $(WHEELS)-unoptimized
	$(BIN)/python tools/try_wheel.py --unoptimized $(WHEELS)-unoptimized

# What builds images; `podman` and `buildah` take the same arguments.
IMAGES ?= docker
BASE ?= python:3.13-slim-bookworm

image: wheel ## the image of deploy/Dockerfile, tidemill:latest
	$(IMAGES) build --file deploy/Dockerfile --build-arg BASE=$(BASE) --tag tidemill:latest .

# An environment of its own, as its packages are many. It is not in target, which caches keep.
SITE := $(VENV)/site

$(SITE)/ready: docs/requirements.txt $(READY)
	test -x $(SITE)/bin/python || $(PYTHON) -m venv $(SITE) 2>/dev/null || $(PYTHON) -m virtualenv --quiet $(SITE)
	$(SITE)/bin/python -m pip install --quiet --disable-pip-version-check -r docs/requirements.txt
	touch $@

site: $(SITE)/ready ## the documents as a site with search and the reference of the package, in target/site; its links are checked
	$(BIN)/python tools/make_site.py collect target
	NO_MKDOCS_2_WARNING=1 $(SITE)/bin/mkdocs --quiet build --strict --clean --config-file target/mkdocs.yml
	$(BIN)/python tools/make_site.py check target/site

clean: ## remove all that was built, set up or made
	cargo clean
	rm -rf $(VENV) .mypy_cache .pytest_cache .ruff_cache python/tidemill/*.so python/tidemill/THIRD-PARTY.txt examples/data examples/out
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
