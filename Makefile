# A command runner: `make` alone lists what there is. All targets set themselves up.
# For another Python, name both: make test PYTHON=python3.13 VENV=.venv-3.13

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
# What codespell checks: whatever is written in the words of docs/glossary.md.
CODESPELL := functions shared knative tests examples README.md ARCHITECTURE.md CHANGELOG.md CONTRIBUTING.md SECURITY.md CODE_OF_CONDUCT.md docs

# What `make unit` runs: the packages without I/O. The tests on random inputs are in tests/properties.
UNIT := $(addprefix tests/unit/,core evaluation safeguards usecases)
# What `make test` runs, without the tests that have the marker `verify`.
# The slow folders come first, so that no worker ends with a long file alone.
DETERMINISTIC := $(addprefix tests/,simulation manifests properties unit functions conformance reference chart release examples)
# The tests on real servers; those with the marker `smoke` are those of `make smoke`.
REAL := $(addprefix tests/,contract crash integration)
PARALLEL := -n auto --dist loadfile --no-loadscope-reorder

RELEASE := .venv-release
RELEASE_READY := $(RELEASE)/.ready
LOCK := uv pip compile --universal --python-version 3.11 --generate-hashes --no-emit-index-url --custom-compile-command "make lock" -q

.DEFAULT_GOAL := help
.PHONY: help setup demo demo-svg docs chart index unit test smoke e2e-smoke verify real e2e e2e-revisions flakes docs-check sim chaos bench bench-guard headlamp lint format types layers check audit dist binary krew \
	release-check release-notes lock clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / {printf "  make %-8s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: $(READY) ## make .venv with everything in it; quick when there is nothing to do

$(READY): requirements-dev.txt pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit("Python 3.11 or newer is needed; this is " + sys.version.split()[0] + ". Set PYTHON=...") if sys.version_info < (3, 11) else None'
	@echo "setting up $(VENV): 1/3 a virtual environment"
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "setting up $(VENV): 2/3 $$(grep -c == requirements-dev.txt) pinned packages, a minute or two at the first time"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements-dev.txt
	@echo "setting up $(VENV): 3/3 this project"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $@

demo: $(READY) ## watch finished Jobs and Pods go, each at its time (about 20 seconds, no cluster needed)
	@$(BIN)/ttl-after-finished demo

demo-svg: $(READY) ## record docs/demo.svg, the picture of the README, from the real output of the demo
	@$(BIN)/python -m tests.demo_svg docs/demo.svg

index: $(READY) ## let the index of ARCHITECTURE.md follow functions that have moved
	@$(BIN)/python -m tests.symbols

unit: $(READY) ## the unit tests without I/O, in seconds: decisions, safeguards, use cases
	@$(BIN)/pytest -n 2 -q -p no:hypothesispytest --durations 5 --durations-min 0.5 $(UNIT)

test: $(READY) ## the tests that need nothing but Python: the same result on each machine, in 5 minutes
	@$(BIN)/pytest $(PARALLEL) -m "not verify" --durations 10 $(DETERMINISTIC)

smoke: $(READY) ## each promise once on real servers: 3 minutes; without their binaries, these tests are skipped
	@$(BIN)/pytest -n 0 -m smoke --durations 10 $(REAL)

e2e-smoke: $(READY) ## one object from its event to its deletion on the cluster of KUBECONFIG, with Knative
	@$(BIN)/pytest -x --durations 5 tests/e2e/test_smoke.py

verify: ## all tests there are, with real servers, a cluster and the image's Python: 100 minutes
	@bash .ci/verify

# A test that failed runs once more, alone; FLAKY lists those that passed then. Tests whose promise is a time run alone.
real: FLAKY := flaky-tests.txt
# Both halves run, whatever the first one finds.
real: $(READY) ## all tests that `make test` leaves out, but the end-to-end tests
	@rm -f $(FLAKY)
	@failed=0; \
	$(BIN)/python -m tests.verify --flaky $(FLAKY) -- $(PARALLEL) -m "verify and not realtime" $(REAL) $(DETERMINISTIC) || failed=1; \
	$(BIN)/python -m tests.verify --flaky $(FLAKY) -- -n 0 -m "verify and realtime" $(REAL) $(DETERMINISTIC) || failed=1; \
	exit $$failed

flakes: $(READY) ## what `make test` runs, often, in random order, under load: make flakes ROUNDS=20
	@$(BIN)/python -m tests.flakes --rounds $(or $(ROUNDS),20) --seed $(or $(SEED),1) -- \
		$(PARALLEL) -q --no-header --no-summary -m "not verify" $(DETERMINISTIC)

e2e e2e-revisions e2e-smoke: export E2E_IMAGE ?= busybox:1.37
e2e: $(READY) ## tests on the cluster of KUBECONFIG, with Knative: they install, break and uninstall
	@$(BIN)/pytest tests/e2e

e2e-revisions: $(READY) ## revisions, evictions, a burst and scale to zero on the cluster of KUBECONFIG, with Knative Serving
	@E2E_SERVING=1 $(BIN)/pytest -rP tests/e2e/test_revisions.py

sim: $(READY) ## one seed of the simulation, with its trace: make sim SEED=7
	@$(BIN)/python -m tests.simulation $(or $(SEED),1) --verbose

chaos: $(READY) ## kill timers, servers and connections: make chaos MINUTES=60 ENGINE=sqlite SEED=7
	@$(BIN)/python -m tests.crash.chaos --minutes $(or $(MINUTES),1) --engine $(or $(ENGINE),sqlite) $(if $(SEED),--seed $(SEED))

bench: $(READY) ## measure against the peer and the limit, in one run (needs the real servers)
	@$(BIN)/python -m tests.benchmarks

bench-guard: $(READY) ## fail if a deletion takes much more processor time than recorded (3 minutes, real servers)
	@$(BIN)/python -m tests.benchmarks --only cpu

headlamp: $(READY) ## build examples/headlamp-plugin and test it in Chromium (3 minutes; needs Node.js and the network)
	@folder=$$(mktemp -d) && trap 'rm -rf "$$folder"' EXIT && cp examples/headlamp-plugin/package.json "$$folder" && \
	(cd "$$folder" && npm install --ignore-scripts --no-package-lock --no-audit --no-fund --loglevel=error) && \
	HEADLAMP_MODULES="$$folder/node_modules" $(BIN)/pytest -n 0 -q tests/examples/test_headlamp_page.py \
	tests/integration/test_headlamp.py

docs: $(READY) ## write docs/reference from the code
	@$(BIN)/python -m tests.reference

chart: $(READY) ## write knative/chart from the kustomizations of knative/ (needs kubectl)
	@$(BIN)/python -m tests.chart

lint: $(READY) docs-check ## ruff, its formatter, codespell, and docs-check
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/codespell $(CODESPELL)

docs-check: $(READY) ## links, snippets and generated files: what is broken or stale, in seconds
	@$(BIN)/pytest -n 0 -q tests/docs

format: $(READY) ## fix what ruff can fix, and format
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .

types: $(READY) ## mypy: functions and shared are strict, tests need no annotations
	@$(BIN)/mypy

layers: $(READY) ## which package may import which
	@$(BIN)/lint-imports

check: lint types layers test ## lint, types, layers and test

$(RELEASE_READY): requirements-release.txt
	@$(PYTHON) -m venv $(RELEASE)
	@$(RELEASE)/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements-release.txt
	@touch $@

audit: $(RELEASE_READY) ## list known vulnerabilities of the locked packages (needs the network)
	@$(RELEASE)/bin/pip-audit --progress-spinner off --strict --require-hashes --disable-pip -r requirements.txt

dist: VERSION = $(shell sed -n 's/^__version__ = "\(.*\)"/\1/p' shared/__init__.py)
dist: $(RELEASE_READY) ## make dist/: the wheel, the SBOM of what it needs, and the package of the chart (needs helm)
	@rm -rf dist build
	@$(RELEASE)/bin/hatchling build --target wheel --directory dist
	@$(RELEASE)/bin/python -m venv --without-pip build/installed
	@$(RELEASE)/bin/python -m pip --python build/installed install --quiet --disable-pip-version-check --require-hashes -r requirements.txt
	@$(RELEASE)/bin/python -m pip --python build/installed install --quiet --disable-pip-version-check --no-deps dist/*.whl
	@build/installed/bin/ttl-after-finished --version
	@sed 's/^dynamic = .*/version = "$(VERSION)"/' pyproject.toml > build/pyproject.toml
	@$(RELEASE)/bin/cyclonedx-py environment --pyproject build/pyproject.toml --output-reproducible \
		--output-file dist/ttl-after-finished-$(VERSION).cdx.json build/installed
	@helm package knative/chart --destination dist
	@cd dist && sha256sum * > SHA256SUMS && cat SHA256SUMS

# `uname` in the words of Go, which krew uses.
SYSTEM = $(shell uname -s | tr A-Z a-z)
MACHINE = $(shell uname -m | sed -e s/x86_64/amd64/ -e s/aarch64/arm64/)

binary: $(RELEASE_READY) ## make dist/kubectl-ttl_SYSTEM_MACHINE.tar.gz: `kubectl ttl` with its own Python (2 minutes)
	@rm -rf build && mkdir -p build dist
	@$(RELEASE)/bin/hatchling build --target wheel --directory build
	@$(RELEASE)/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes --target build/packages -r requirements.txt
	@$(RELEASE)/bin/python -m pip install --quiet --disable-pip-version-check --no-deps --upgrade --target build/packages build/*.whl
	@cp tests/release/program.py build/kubectl-ttl.py
	@PYTHONPATH=build/packages $(RELEASE)/bin/pyinstaller --noconfirm --log-level ERROR --onedir --name kubectl-ttl --specpath build \
		--workpath build/work --distpath build/binary --collect-submodules shared --collect-submodules functions \
		--collect-data shared --add-data $(CURDIR)/build/packages/knative:knative \
		--add-data $(CURDIR)/build/packages/functions:functions build/kubectl-ttl.py
	@cp LICENSE build/binary && build/binary/kubectl-ttl/kubectl-ttl --version && build/binary/kubectl-ttl/kubectl-ttl kinds > build/kinds
	@tar -C build/binary -czf dist/kubectl-ttl_$(SYSTEM)_$(MACHINE).tar.gz LICENSE kubectl-ttl

krew: $(READY) ## print the manifest for krew: sha256sum *.tar.gz | make krew TAG=v0.1.0
	@$(BIN)/python -m tests.release krew $(TAG)

release-check: $(READY) ## check that the files name the version of a tag: make release-check TAG=v0.1.0
	@$(BIN)/python -m tests.release check $(TAG)

release-notes: $(READY) ## print the section of a tag in CHANGELOG.md: make release-notes TAG=v0.1.0
	@$(BIN)/python -m tests.release notes $(TAG)

lock: ## renew the lock files from pyproject.toml (needs uv)
	$(LOCK) pyproject.toml --extra otel -o requirements.txt
	$(LOCK) pyproject.toml --extra demo --extra otel --group dev -o requirements-dev.txt
	$(LOCK) --group pyproject.toml:release -o requirements-release.txt

clean: ## remove what setup and the tools made
	rm -rf $(VENV) $(RELEASE) build dist .mypy_cache .pytest_cache .ruff_cache .hypothesis .import_linter_cache
