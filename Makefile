# `make` prints the targets. Everything local goes to .tools/ and target/.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.PHONY: help build demo mixed test quick trainer-test trainers-all jaeger-test torture cluster-test upgrade-test slurm-trial log-test explain-cases forecast-month whatif-real scaling lint check fmt docs bench bench-gateway bench-hyperqueue bench-checkpoints bench-years compose-test gpu-shares gpu-cost gpu-histories gpu-test gpu-bench release tools clean

TOOLS := $(or $(DORMOUSE_TOOLS),$(CURDIR)/.tools)
# What the tests and the demo find their servers and interpreters by.
export DORMOUSE_NATS_SERVER ?= $(TOOLS)/bin/nats-server
export DORMOUSE_PYTHON ?= $(TOOLS)/venv/bin/python3
export DORMOUSE_CLIENT_TOOLS ?= $(TOOLS)/clients
export DORMOUSE_AXE ?= $(TOOLS)/axe/axe.min.js
# The trainers' python3 and mpiexec before the system's; cargo last, where rustup put it.
RUN_PATH := $(TOOLS)/venv/bin:$(TOOLS)/bin:$(PATH):$(HOME)/.cargo/bin
CARGO := PATH="$(PATH):$(HOME)/.cargo/bin" cargo
TRAINER_TEST := cd messages/trainer/python && PATH="$(RUN_PATH)" $(TOOLS)/venv/bin/python3 -m pytest -p no:cacheprovider -c pyproject.toml tests ../../../deploy/grafana
KILLS ?= 200
FAULTS ?= 2000
MINUTES ?= 10
SEED ?= $(shell date +%s)
CASES ?= 500
JOBS ?= 200
YEARS_JOBS ?= 250000
HISTORIES ?= 10000

help: ## Print this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-17s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

tools: ## Install what build, tests and demo need (Debian 12, as root)
	scripts/install.sh build nats docker trainers notebook clients browser promtool cudart s3 hosts slurm release

build: ## Build the dormouse binary
	scripts/install.sh build
	$(CARGO) build -p dormouse -p dormouse-gpu-preload

demo: ## Run a cluster of four nodes on this machine and seven jobs that come and go
	scripts/install.sh build nats trainers
	$(CARGO) build -p dormouse -p dormouse-gpu-preload
	PATH="$(RUN_PATH)" target/debug/dormouse demo --overwrite $(ARGS)

mixed: ## Show training, a model service, notebooks and a shared GPU on one machine, with real clients, in three minutes
	scripts/install.sh build nats trainers notebook
	$(CARGO) build -p dormouse -p dormouse-gpu-preload -p dormouse-gpu-standin
	PATH="$(RUN_PATH)" $(TOOLS)/venv/bin/python3 deploy/examples/mixed/run.py $(ARGS)

scaling: ## Two jobs on eight devices, one of which scales badly, with and without their speeds: five minutes
	scripts/install.sh build nats trainers
	$(CARGO) build -p dormouse -p dormouse-gpu-preload
	PATH="$(RUN_PATH)" $(TOOLS)/venv/bin/python3 deploy/examples/mixed/scaling.py $(ARGS)

test: ## Run every test, with a real broker, container engine, training frameworks and browser
	scripts/install.sh build nats docker trainers notebook clients browser promtool cudart s3 hosts slurm release
	PATH="$(RUN_PATH)" cargo test --workspace $(ARGS)
	$(TRAINER_TEST)

QUICK = dormouse-messages dormouse-state dormouse-shell dormouse-agent-core dormouse-admission dormouse-optimizer \
	dormouse-placer dormouse-checkpointer dormouse-autoscaler dormouse-projections dormouse-replay

quick: ## Test the pure crates without a broker, or one alone: CRATE=dormouse-placer
	$(CARGO) test $(addprefix -p ,$(or $(CRATE),$(QUICK))) --lib $(ARGS)

trainer-test: ## Test the trainer's library alone, with its frameworks, and the dashboard
	scripts/install.sh trainers
	$(TRAINER_TEST)

trainers-all: ## The same for large frameworks: torch and Hugging Face (6 GB), and TensorFlow for jobs of one's own (1.5 GB)
	scripts/install.sh build nats trainers-all
	$(CARGO) build -p dormouse -p dormouse-gpu-preload
	cd messages/trainer/python && $(TOOLS)/venv-torch/bin/python3 -m pytest -p no:cacheprovider tests/large

jaeger-test: ## Build a real Jaeger and follow a job of every language, a resize and a refusal through it
	scripts/install.sh build nats clients jaeger
	PATH="$(RUN_PATH)" cargo test --workspace --test all -- --ignored jaeger::

torture: ## Kill every process at random moments, then simulated clusters: make torture KILLS=1000 FAULTS=10000
	scripts/install.sh build nats trainers
	PATH="$(RUN_PATH)" DORMOUSE_TORTURE_KILLS=$(KILLS) cargo test -p dormouse --test all torture:: $(ARGS) -- --nocapture
	DORMOUSE_FAULTS=$(FAULTS) $(CARGO) test -p dormouse-replay --test all torture:: -- --nocapture

cluster-test: ## Torment a cluster on hosts of its own (network namespaces, as root): make cluster-test MINUTES=60 SEED=7
	scripts/install.sh build nats docker hosts
	PATH="$(RUN_PATH)" DORMOUSE_NEMESIS_MINUTES=$(MINUTES) DORMOUSE_NEMESIS_SEED=$(SEED) cargo test -p dormouse --test all nemesis::a_cluster_survives $(ARGS) -- --nocapture

upgrade-test: ## Upgrade and downgrade a cluster under load, from a commit or from this tree: make upgrade-test FROM=v0.1.0
	scripts/install.sh build nats
	DORMOUSE_UPGRADE_OLD=$$(PATH="$(PATH):$(HOME)/.cargo/bin" scripts/older-build.sh $(FROM)) \
		$(CARGO) test -p dormouse --features test-format --test all upgrades::a_cluster_is_upgraded $(ARGS) -- --ignored --nocapture

log-test: ## Four writers on three brokers at 200 events a second, at last with leaders killed: make log-test MINUTES=60
	scripts/install.sh build nats
	DORMOUSE_LOG_MINUTES=$(MINUTES) $(CARGO) test -p dormouse-runtime --test all writers::a_log_carries -- --ignored --nocapture

slurm-trial: ## Let fifty allocations of a real Slurm come and go, some cancelled under their jobs: six minutes
	scripts/install.sh build nats slurm
	PATH="$(RUN_PATH)" cargo test -p dormouse --test all slurm::fifty_allocations $(ARGS) -- --ignored --nocapture

explain-cases: ## Try every change that explanations of generated jobs name again: make explain-cases CASES=500
	DORMOUSE_EXPLAIN_CASES=$(CASES) $(CARGO) test -p dormouse-replay --test all explain::cases::every_named -- --nocapture

forecast-month: ## Score the forecasts of starts over a simulated month, next to three simple rules: half an hour
	$(CARGO) test --workspace --test all -- --ignored --nocapture forecasts::a_month

whatif-real: ## How far whatif's model is off 200 jobs of real processes, six minutes: make whatif-real JOBS=200 SEED=1
	scripts/install.sh build nats trainers
	$(CARGO) build -p dormouse -p dormouse-gpu-preload
	PATH="$(RUN_PATH)" python3 scripts/whatif-real.py --jobs $(JOBS) --seed $(SEED)

lint: ## Check format and lints; a warning fails
	scripts/install.sh build
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --all-targets -- -D warnings

# Lints and tests from one build: clippy compiles the workspace's crates, benches included, and
# their dependencies are compiled once, not a second time for the lints.
check: export RUSTC_WORKSPACE_WRAPPER := clippy-driver
check: export CLIPPY_ARGS := -Dwarnings__CLIPPY_HACKERY__
check: ## Format, lints and tests, as CI runs them: one build for all
	scripts/install.sh build nats docker trainers notebook clients browser promtool cudart s3 hosts slurm release
	$(CARGO) fmt --all --check
	PATH="$(RUN_PATH)" scripts/lints-can-fail.sh
	PATH="$(RUN_PATH)" cargo build --workspace --all-targets
	PATH="$(RUN_PATH)" cargo test --workspace --no-fail-fast $(ARGS)
	PATH="$(RUN_PATH)" DORMOUSE_NEMESIS_MINUTES=0 cargo test --workspace --test all nemesis::a_cluster_survives_a_minute -- --nocapture
	$(TRAINER_TEST)

fmt: ## Format the sources
	$(CARGO) fmt --all

docs: ## Write the generated parts of the documents
	UPDATE_DOCS=1 $(CARGO) test -p dormouse --bin dormouse documents

bench: ## Run the benchmarks, optimised
	scripts/install.sh build nats
	PATH="$(RUN_PATH)" cargo bench --workspace $(ARGS)

bench-gateway: ## Run the gateway beside HAProxy, optimised (installs haproxy and wrk)
	scripts/install.sh build nats
	command -v haproxy wrk > /dev/null || apt-get install -y --no-install-recommends haproxy wrk
	PATH="$(RUN_PATH)" cargo bench -p dormouse-gateway --bench gateway

bench-hyperqueue: ## Time from a submission to a program's first instruction, beside HyperQueue
	scripts/install.sh build nats hyperqueue
	$(CARGO) build --release -p dormouse
	PATH="$(RUN_PATH)" $(TOOLS)/hyperqueue/bin/python3 services/dormouse/benches/hyperqueue/run.py target/release/dormouse

bench-checkpoints: ## What a store of checkpoints adds to a resize, against a server that speaks S3
	scripts/install.sh build s3
	DORMOUSE_TOOLS=$(TOOLS) $(CARGO) test --workspace --test all -- --ignored --nocapture figures_of_a_store

bench-years: ## Measure a log of years, optimised, half an hour: make bench-years YEARS_JOBS=250000
	scripts/install.sh build nats
	$(CARGO) build --release -p dormouse
	DORMOUSE_YEARS_JOBS=$(YEARS_JOBS) DORMOUSE_YEARS_UP=$(CURDIR)/target/release/dormouse \
		$(CARGO) test --release -p dormouse-archive --test all -- --ignored --nocapture figures_of_years

compose-test: ## Bring deploy/compose.yaml up, run jobs through it, kill a broker and a service, judge its log
	scripts/install.sh build nats compose
	$(CARGO) build -p dormouse
	PATH="$(RUN_PATH)" scripts/compose-test.sh target/debug/dormouse

release: ## Make archive, wheel and Debian package with a static binary, and try each: make release ARGS="--key FILE --twice"
	scripts/install.sh build nats release
	PATH="$(PATH):$(HOME)/.cargo/bin" scripts/release.sh $(ARGS)

gpu-shares: ## Judge the shares of a modelled GPU on the real clock: needs a machine that does nothing else
	$(CARGO) test --workspace --test all -- --ignored --test-threads 1 shares::

gpu-cost: ## Measure what the library adds to a launch on the stand-in, optimised
	$(CARGO) test --release -p dormouse-gpu-trial --test all -- --ignored cost --nocapture

gpu-histories: ## Processes on the stand-in through random histories: make gpu-histories HISTORIES=10000
	DORMOUSE_GPU_PROCESS_HISTORIES=$(HISTORIES) $(CARGO) test --release -p dormouse-gpu-share -p dormouse-gpu-trial --test all -- histories --nocapture

gpu-test: ## Try sharing on this machine's GPU; on one without, say so: make gpu-test HOST=user@machine carries the programs there
	scripts/gpu.sh test $(HOST)

gpu-bench: ## Measure shares and cost on this machine's GPU, or on HOST's, with the device named
	scripts/gpu.sh bench $(HOST)

clean: ## Remove what was built; .tools/ stays (rm -rf .tools removes it)
	$(CARGO) clean
