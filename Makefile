# The project's commands. `make demo` shows the product, `make test` tests it; both install what they need.
SHELL := bash
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PYTEST := $(BIN)/python -m pytest
# How many processes the tests run in. Many tests wait for leases and containers, so it is more than there are processors.
JOBS ?= $(shell expr 2 '*' $$(nproc 2> /dev/null || echo 2))
SPREAD := -n $(JOBS) --no-loadscope-reorder

# The tests start hundreds of processes, and each would compile every module again if none may be kept.
export PYTHONDONTWRITEBYTECODE :=

MINUTES ?= 30
SEEDS ?= 20000

.PHONY: help install demo screenshots prepare check test lint unit contract integration chaos chaos-long seen-to-fail simulation \
    soak fuzz smoke fleet coverage docs bench wheels release clean

help:  ## show this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /\1\t/' | expand -t 14

install: $(VENV)/.installed  ## make .venv with all four parts and the tools

$(VENV)/.installed: constraints.txt pyproject.toml shared/pyproject.toml coordinator/pyproject.toml worker/pyproject.toml cli/pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit("deborgen needs Python 3.11 or newer" if sys.version_info < (3, 11) else 0)'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install -q -c constraints.txt pip
	$(BIN)/python -m pip install -q -c constraints.txt --group dev \
	    -e './shared[http]' -e './coordinator[postgres,s3,rabbitmq]' -e ./worker -e './cli[up]'
	@touch $@

demo: install  ## start a pool on this machine, run a sweep on it, and show the results; KEEP=1 leaves the pool up
	KEEP=$(KEEP) tools/demo.sh

screenshots: prepare  ## make pictures of all pages of the dashboard, in .cache/screenshots, and the one in the README
	$(BIN)/python tools/screenshots.py

prepare: install  ## install PostgreSQL, Podman and a test image, if possible
	tools/prepare.sh

check: lint  ## lint, the unit tests, and the contract on SQLite: quick, for every few minutes of work
	$(PYTEST) tests/unit tests/contract -m "not postgres" $(SPREAD)

test: lint prepare  ## lint and all tests except the fleet
	$(PYTEST) tests --ignore tests/fleet $(SPREAD)

unit: install  ## the unit tests
	$(PYTEST) tests/unit $(SPREAD)

contract: prepare  ## every promise of the coordinator, on both databases
	$(PYTEST) tests/contract $(SPREAD)

integration: prepare  ## tests with real processes and real containers
	$(PYTEST) tests/integration $(SPREAD)

chaos: prepare  ## crashes, partitions, full disks, hostile input; and the simulation
	$(PYTEST) tests/chaos tests/simulation $(SPREAD)

chaos-long: prepare  ## tests of faults that take long
	DEBORGEN_LONG=1 $(PYTEST) tests/chaos/test_end_to_end.py --timeout 3600

seen-to-fail: prepare  ## check that each test of a fault fails when a bug is planted for it; FAULTS="10 11" for some
	$(BIN)/python tools/seen_to_fail.py $(FAULTS)

simulation: install  ## simulate SEEDS=20000 random histories of a pool
	cd tests && ../$(BIN)/python -m simulation 1000 $(SEEDS)

soak: install  ## run MINUTES=30 of faults against a coordinator and eight workers, then the audit
	$(BIN)/python tests/chaos/soak.py --minutes $(MINUTES)

fuzz: MINUTES := 10
fuzz: install  ## attack a pool on this machine for MINUTES=10, or with REQUESTS=1000000, and say what breaks
	cd tests && ../$(BIN)/python -m fuzz $(if $(REQUESTS),--requests $(REQUESTS),--minutes $(MINUTES)) $(if $(SEED),--seed $(SEED))

smoke: install  ## try a coordinator and the command on this machine, without a worker, in seconds
	tools/smoke.sh $(BIN)

fleet: prepare  ## test the playbooks over SSH, on real hosts with systemd
	tools/fleet.sh

# The test of random lifecycles is left out: with coverage it takes minutes, and other tests run the same lines.
coverage: prepare  ## measure how many lines of each part the tests run, child processes included
	rm -f .cache/coverage/data*
	$(BIN)/coverage run -m pytest tests/unit tests/contract tests/integration tests/simulation $(SPREAD) \
	    --ignore tests/contract/coordinator/test_machine.py --timeout 900; echo $$? > .cache/coverage/status
	$(BIN)/coverage combine -q
	@for part in shared coordinator worker cli; do \
	    printf '%-12s %s %%\n' $$part "$$($(BIN)/coverage report --include="$$part/src/*" --format=total)"; done
	@exit $$(cat .cache/coverage/status)

docs: install  ## write the parts of the documents that derive from the code
	$(BIN)/python tools/write_docs.py

lint: install  ## ruff, mypy --strict, import-linter
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

bench: install  ## run the benchmarks, each next to a comparison from the same run
	$(BIN)/python benchmarks/coordinator.py
	for one in benchmarks/worker_*.py benchmarks/cli_*.py; do echo; echo "== $$one"; $(BIN)/python $$one || exit 1; done

wheels: install  ## build the four wheels into dist/
	rm -rf dist
	for part in shared coordinator worker cli; do $(BIN)/python -m build -q --wheel --outdir dist $$part || exit 1; done
	@ls dist

release:  ## set VERSION=0.2.0 everywhere, and date the changelog; it neither tags nor pushes
	@$(PYTHON) tools/release.py "$(VERSION)"

clean:  ## remove everything that these commands made
	rm -rf $(VENV) dist .cache .demo shared/build coordinator/build worker/build cli/build
