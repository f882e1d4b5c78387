# Everything a user or CI types. `make serve` and `make test` set up what they need and say what they install.
# Options go through: make serve ARGS="--port 4001"; another Python: make serve PYTHON=python3.12
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

# IO=portable: without io_uring, in every life of `make soak`, `make powercut` and `make client-faults`.
IO ?=
CYCLES ?= 200
CUTS ?= 500
CRASHES ?= 20
# Seeds of `make sim` and `make again`; or one of them, to see what happens in it.
N ?= 1000
SEED ?=
# Processes that run tests, or lives, side by side.
JOBS ?= 2
# Tests start many processes: without compiled modules each of them takes half a second of CPU more.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help buckets packages wheels pages tutorial perf-smoke sanitize serve test spark spark-cluster spark-packages model bench-peers bench-goals fuzz-lane test-packages sim again powercut soak api-fuzz autobahn check venv build format clean sweeps mutants rot exports fuzz limits hunt client-faults bridge pyright ui packaging api-clients mirror variants cores-contract many

help: ## this list
	@sed -nE 's/^([a-z][a-z-]*):.*## (.*)/  \1\t\2/p' $(MAKEFILE_LIST) | expand -t 18

# openapi-python-client in an environment of its own, openapi-typescript from the package index of node; each once.
api-clients: venv ## clients that generators make of /openapi.json, used against a server
	@test -x $(VENV)/generators/bin/openapi-python-client || { $(PYTHON) -m venv $(VENV)/generators && \
		$(VENV)/generators/bin/pip install -q --disable-pip-version-check "openapi-python-client>=0.26"; }
	@if command -v npm >/dev/null; then npm install --silent --no-audit --no-fund --prefix $(VENV)/generators typescript@5 openapi-typescript@7 openapi-fetch @types/node@20; fi
	$(BIN)/python -m pytest -m slow -rs tests/long/api_clients $(ARGS)

# systemd, nginx, caddy, prometheus, strace, docker-compose and a builder of images, each where it is here (Debian has all).
packaging: venv ## the files of packaging/: unit, profile of calls, proxies, compose file, rules, image
	$(BIN)/python -m pytest -m "slow or not slow" -rs -s tests/project/packaging $(ARGS)

# Chromium (Debian: chromium) and node 20; playwright-core comes from the package index of node, once.
ui: venv ## /ui in Chromium, with screenshots in build/ui
	@if command -v npm >/dev/null; then npm install --silent --no-audit --no-fund --prefix $(VENV)/node playwright-core@1; fi
	$(BIN)/python -m pytest -m slow -rs -s tests/long/browser $(ARGS)

# Without the test tools.
serve: $(VENV)/.base ## a server on this machine; ARGS="--port 4001"
	@$(MAKE) -s build
	$(BIN)/topics serve $(ARGS)

# `make test` runs a part of them: what differs by more than the body of a request or what comes after the parser.
variants: venv test-packages ## the contract's tests over HTTP/2, with h11, in the lane, and relayed between cores
	$(BIN)/python -m pytest -n $(JOBS) --dist worksteal -m "slow or not slow" \
		tests/contract/requests/test_over_http2.py tests/contract/requests/test_over_h11.py tests/contract/requests/test_in_the_lane.py tests/contract/requests/test_relayed.py $(ARGS)

# tests/contract/several_cores.py has the tests that are left out, each with its reason.
CORES ?= 2
cores-contract: venv test-packages ## the contract's tests over servers of several cores, each a process; CORES=n
	$(BIN)/python -m pytest -n $(JOBS) --dist worksteal tests/contract --live --cores $(CORES) $(ARGS)

# TOPICS_TEST_TIMES=n takes n times as many (tests/amount.py).
many: venv test-packages ## tests of many seeds, examples and places with all of these; `make test` takes a quarter
	TOPICS_TEST_TIMES=$${TOPICS_TEST_TIMES:-1} $(BIN)/python -m pytest -n $(JOBS) --dist worksteal \
		$$(grep -rlE "tests.amount|hypothesis" tests --include="test_*.py") $(ARGS)

# SPARK=0: without Java and pyspark (half a gigabyte); the tests that need them are skipped and say so.
test: venv test-packages spark-packages ## everything fast; JOBS=n processes, ARGS="tests/store -x"
	$(BIN)/python -m pytest -n $(JOBS) --dist worksteal $(ARGS)

# All tests with a JVM; `make test` runs one of them. CRASHES=n: how many processes are killed, SEED=n: which.
spark: venv spark-packages ## every test with a JVM; CRASHES=n
	@$(BIN)/python -c 'import matplotlib' 2>/dev/null || $(BIN)/python -m pip install -q --disable-pip-version-check 'matplotlib>=3.8'
	TOPICS_TEST_CRASHES=$(CRASHES) $(if $(SEED),TOPICS_TEST_SEED=$(SEED)) $(BIN)/python -m pytest -m spark tests/spark $(ARGS)

# A standalone master and two workers on loopback; executors have the package from a zip, or from a packed environment.
spark-cluster: venv spark-packages ## pipelines on a standalone cluster
	$(BIN)/python -m pytest -m slow tests/spark/jvm/test_cluster.py $(ARGS)

spark-packages: venv
	@bash scripts/spark_packages.sh $(VENV)

test-packages:
	@bash scripts/test_packages.sh

# A tiny run of every measurement of perf/, so that none rots.
perf-smoke: venv ## a tiny run of every measurement of perf/
	$(BIN)/python -m pytest -m slow tests/project/test_perf_smoke.py $(ARGS)

powercut: venv test-packages ## cut the power of a real ext4; CUTS=n
	TOPICS_TEST_CUTS=20 TOPICS_TEST_TIMES=3 $(BIN)/python -m pytest -q tests/long/powercut/test_failing_disk.py
	$(BIN)/python -m tests.long.powercut.run --cuts $(CUTS) $(if $(IO),--io $(IO)) $(ARGS)

sim: venv ## whole servers from seeds; N=n of them, SEED=n one line by line
	$(BIN)/python -W ignore -m tests.sim.whole $(if $(SEED),--seed $(SEED),--count $(N)) $(ARGS)

# Without an oracle: what is seen before a kill is what is seen after it.
again: venv ## the state before a kill equals the state after it; N=n, SEED=n
	$(BIN)/python -W ignore -m tests.sim.again $(if $(SEED),--seed $(SEED),--count $(N)) $(ARGS)

# The whole contract against one oracle, in any order; ARGS=--live: a real server (EXAMPLES of them, SEED to repeat one).
EXAMPLES ?= 1000
model: venv ## any request in any order against one oracle; EXAMPLES=n, ARGS=--live
	$(BIN)/python -W ignore -m tests.long.model --examples $(EXAMPLES) $(if $(SEED),--seed $(SEED)) $(ARGS)

# Short lives in which every operation fails in turn, and which end after every operation in turn.
sweeps: venv ## every operation of eight lives fails in turn
	$(BIN)/python -W ignore -m tests.sim.sweeps $(ARGS)

# Every byte of a small store rots, before a server and before readers of its files.
rot: venv ## every byte of a small store flips in its turn
	$(BIN)/python -W ignore -m tests.sim.rot $(ARGS)
	$(BIN)/python -m pytest -m slow tests/files

# The code is broken in many ways, and the simulation has to notice each.
mutants: venv ## the code is broken on purpose, and the simulation notices
	$(BIN)/python -m tests.sim.mutants $(ARGS)

# The costliest values of every field, with 10^6 records and 10^5 topics: passes of the loop above 20 ms of CPU.
limits: venv ## the costliest values of every field; TOPICS_LIMITS_MS=n
	$(BIN)/python -m tests.long.limits.stored_jobs
	$(BIN)/python -m tests.long.limits.waiting_clients
	$(BIN)/python -m tests.long.limits.large_states
	$(BIN)/python -m tests.long.limits.crowds
	$(BIN)/python -m tests.long.limits $(ARGS)

soak: venv ## kill a real server again and again; CYCLES=n
	$(BIN)/python -m tests.long.soak.kill_loop --cycles $(CYCLES) $(if $(IO),--io $(IO)) $(ARGS)

# Clients behind a proxy that cuts, delays, repeats and truncates; the server is killed every second.
ROUNDS ?= 1000
client-faults: venv ## clients of a killed server on a bad network; ROUNDS=n, SEED=n
	$(BIN)/python -m tests.long.client_faults.fault_rounds --rounds $(ROUNDS) $(if $(SEED),--seed $(SEED)) $(if $(IO),--io $(IO)) $(ARGS)

# Kafka's broker comes from Maven, once, nats-server from Go where it is missing; a side that cannot be had is left out and said.
KILLS ?= 100
SIDE ?=
bridge: venv ## a bridge to Kafka and NATS, killed; KILLS=n, SIDE=nats
	$(BIN)/python -m pip install -q --disable-pip-version-check "confluent-kafka>=2.4" "nats-py>=2.7" "nkeys>=0.2"
	@if command -v mvn >/dev/null && ! test -d $(VENV)/kafka; then mvn -q -B -f tests/long/bridge/kafka.xml \
		dependency:copy-dependencies -DoutputDirectory=$(abspath $(VENV))/kafka || rm -rf $(VENV)/kafka; fi
	$(if $(filter kafka,$(SIDE)),,$(BIN)/python -m tests.long.bridge.full_stream)
	$(BIN)/python -m tests.long.bridge.bridge_rounds --kills $(KILLS) $(if $(SIDE),--side $(SIDE)) $(if $(SEED),--seed $(SEED)) $(ARGS)

mirror: venv ## backups, and a server and its mirror, killed after every operation and at random; N=n, KILLS=n
	TOPICS_TEST_CORES=3 $(BIN)/python -m pytest -q -n $(JOBS) $(addprefix tests/server/service/cores/test_,backup_lives.py archive_lives.py mirror_lives.py)
	$(BIN)/python -W ignore -m tests.store.backup.backup_sweep
	$(BIN)/python -W ignore -m tests.store.mirror.mirror_sweep
	$(BIN)/python -W ignore -m tests.store.mirror.mirror_world 0 $(N)
	$(BIN)/python -m tests.long.mirror.mirror_rounds --kills $(KILLS) $(if $(SEED),--seed $(SEED))

api-fuzz: venv ## schemathesis against a live server
	$(BIN)/python -m pip install -q --disable-pip-version-check "schemathesis>=4"
	$(BIN)/python scripts/api_fuzz.py $(ARGS)

# WebSocket conformance, groups 1-7, 9 and 10; needs a Python 2.7 (PYTHON27), installs Autobahn's test suite once.
autobahn: venv ## conformance of WebSockets
	$(BIN)/python -m tests.ws.autobahn

# The source package, installed into a new environment from the package index.
packages: venv ## the packages, built and used in a new environment
	$(BIN)/python -m pytest -m slow tests/project/test_packages.py $(ARGS)

# auditwheel comes from the package index, once.
wheels: venv ## wheels for any Linux with glibc 2.28, into dist/
	@bash scripts/wheels.sh dist $(BIN)/python

# docs/tutorial.md as a stranger follows it, in a clean clone of what is committed; needs port 4000.
tutorial: venv ## the tutorial, followed in two terminals
	$(BIN)/python -m tests.long.tutorial $(ARGS)

# moto's server comes from the package index, once.
buckets: venv ## copies in an object store, also against moto's S3 server
	@$(BIN)/python -c 'import moto.server' 2>/dev/null || $(BIN)/python -m pip install -q --disable-pip-version-check 'moto[server]>=5'
	$(BIN)/python -m pytest -m "slow or not slow" -rs tests/embedded/bucket tests/cli/backups $(ARGS)

# Every block of every page, as it is written, on a fresh server.
pages: venv ## every block of every page, on a fresh server
	$(BIN)/python -m pytest -m "slow or not slow" tests/project/pages/test_blocks.py $(ARGS)

# Exports killed before each file operation, and Delta tables read by another implementation; installs deltalake once.
exports: venv ## exports that are killed, and read by another program
	$(BIN)/python -m pip install -q --disable-pip-version-check "deltalake>=1"
	$(BIN)/python -m pytest -m slow tests/pipelines $(ARGS)

MINUTES ?= 30
# Lives of the server that show something new are kept and changed; CORPUS: where they stay for the next hunt.
CORPUS ?= .hunt
hunt: venv ## lives that show something new are changed; MINUTES=n
	$(BIN)/python -W ignore -m tests.sim.hunt --minutes $(MINUTES) --corpus $(CORPUS) --jobs $(JOBS) $(ARGS)

# C under the address and undefined-behaviour sanitizers; ARGS: other tests than those that compare it with Python.
sanitize: venv ## C with the sanitizers; ARGS="tests/http/test_scan.py"
	bash scripts/sanitize.sh $(BIN)/python $(ARGS)

# The decoders, coverage-guided; installs atheris once.
fuzz: venv ## the decoders, coverage-guided; MINUTES=n
	$(BIN)/python -m pip install -q --disable-pip-version-check "atheris>=3"
	$(BIN)/python -W ignore -m tests.long.fuzz --minutes $(MINUTES) $(ARGS)

fuzz-lane: venv ## the lane beside the general path; MINUTES=n
	$(BIN)/python -m tests.server.fuzz_lane --minutes $(MINUTES) $(ARGS)

# Workloads of `topics bench` by turns with the peers that are here; WORKLOADS: others of `topics bench list`. It installs
# the packages of peers, and the one that computes quantiles again.
WORKLOADS ?= write-lone write-64 write-batch write-sustained read-one tail-empty deliver-sse deliver-ws embedded-append embedded-batch
BENCH_PACKAGES = "uvloop>=0.21" "lmdb>=1.4" "hdrhistogram>=0.10.3"
bench-peers: venv ## `topics bench` beside other systems; WORKLOADS=names
	$(BIN)/python -m pip install -q --disable-pip-version-check $(BENCH_PACKAGES)
	$(BIN)/topics bench run $(WORKLOADS) --peers auto $(ARGS)

# The table of goals, each met or missed, from runs of `topics bench`; ARGS="--only lone,tails".
bench-goals: venv ## the table of goals, each met or missed
	$(BIN)/python -m pip install -q --disable-pip-version-check $(BENCH_PACKAGES)
	$(BIN)/python -m perf.goals $(ARGS)

check: venv ## ruff and mypy
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/mypy -p tests.sim.whole
	$(BIN)/mypy tests/project/typed/typed_use.py

# tests/project/typed/typed_use.py uses all that programs use, and misspells some; pyright comes from the package index, once, and brings node.
pyright: venv ## the public surface under pyright's strict mode
	$(BIN)/python -m pip install -q --disable-pip-version-check "pyright>=1.1"
	$(BIN)/pyright -p tests/project/typed/pyright.json $(ARGS)

format: venv ## let ruff format and mend
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

# A make of its own, so that it sees what setup.sh has just built.
venv: $(VENV)/.ready ## the virtual environment
	@$(MAKE) -s build

$(VENV)/.ready: $(VENV)/.base
	@bash scripts/setup.sh $(VENV) test

$(VENV)/.base: pyproject.toml setup.py scripts/setup.sh
	@PYTHON=$(PYTHON) bash scripts/setup.sh $(VENV)

# Without what cffi makes of them.
C_FILES := $(shell find topics -name '[!_]*.[ch]')
build: $(VENV)/.built ## the C modules
$(VENV)/.built: build_ffi.py topics/store/format/log_format.py $(C_FILES) | $(VENV)/.base
	@echo "building the C modules" >&2
	$(BIN)/python build_ffi.py
	@touch $@

clean: ## remove what was built
	rm -rf $(VENV) build *.egg-info topics/*/*.so topics/*/*/*.so topics/*/*.o topics/*/*/*.o topics/*/_*.c topics/*/*/_*.[ch] .mypy_cache .ruff_cache .pytest_cache
