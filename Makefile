# The verbs of the project. `make demo` shows it, `make test` proves it; both set up all they need.
SHELL := bash
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PYTEST := $(BIN)/python -m pytest
# Tests spread over processes. Many of them wait for leases and containers, so there are more processes than processors.
JOBS ?= $(shell expr 2 '*' $$(nproc 2> /dev/null || echo 2))
SPREAD := -n $(JOBS) --no-loadscope-reorder

MINUTES ?= 30
SEEDS ?= 20000

.PHONY: help install demo prepare check test lint unit contract integration chaos chaos-long seen-to-fail simulation \
    soak smoke fleet coverage docs bench wheels release clean

help:  ## this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /\1\t/' | expand -t 14

install: $(VENV)/.installed  ## make .venv with all four parts and the tools

$(VENV)/.installed: constraints.txt pyproject.toml shared/pyproject.toml coordinator/pyproject.toml worker/pyproject.toml cli/pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit("deborgen needs Python 3.11 or newer" if sys.version_info < (3, 11) else 0)'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install -q -c constraints.txt pip
	$(BIN)/python -m pip install -q -c constraints.txt --group dev \
	    -e './shared[http]' -e './coordinator[postgres]' -e ./worker -e './cli[up]'
	@touch $@

demo: install  ## a pool on this machine, a sweep on it, and its results
	tools/demo.sh

prepare: install  ## PostgreSQL, Podman and a test image, where they can be had
	tools/prepare.sh

check: lint  ## lint, the unit tests, and the contract on SQLite: for every few minutes of work
	$(PYTEST) tests/unit tests/contract -m "not postgres" $(SPREAD)

test: lint prepare  ## everything that guards main, but for the fleet
	$(PYTEST) tests --ignore tests/fleet $(SPREAD)

unit: install  ## the tests of the pure core, in seconds
	$(PYTEST) tests/unit $(SPREAD)

contract: prepare  ## every promise of the coordinator, on both databases
	$(PYTEST) tests/contract $(SPREAD)

integration: prepare  ## real processes, real containers
	$(PYTEST) tests/integration $(SPREAD)

chaos: prepare  ## crashes, partitions, full disks, hostile input; and the simulation
	$(PYTEST) tests/chaos tests/simulation $(SPREAD)

chaos-long: prepare  ## the faults that take long
	DEBORGEN_LONG=1 $(PYTEST) tests/chaos/test_end_to_end.py --timeout 3600

seen-to-fail: prepare  ## plant a fault in what each test of a fault guards, and see it fail; FAULTS="10 11" for some
	$(BIN)/python tools/seen_to_fail.py $(FAULTS)

simulation: install  ## SEEDS=20000 lives of a pool, each from its seed
	cd tests && ../$(BIN)/python -m simulation 1000 $(SEEDS)

soak: install  ## MINUTES=30 of faults against a coordinator and eight workers, then the audit
	$(BIN)/python tests/chaos/soak.py --minutes $(MINUTES)

smoke: install  ## a coordinator and the command on this machine, without a worker, in seconds
	tools/smoke.sh $(BIN)

fleet: prepare  ## real hosts with systemd, joined by the playbooks over SSH
	tools/fleet.sh

# The state machine of the lifecycle is left out: it takes minutes where every line is counted, and runs no line of its own.
coverage: prepare  ## how many lines of each part the tests run, child processes included
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

bench: install  ## the figures, each beside what it is compared with
	$(BIN)/python benchmarks/coordinator.py
	for one in benchmarks/worker_*.py benchmarks/cli_*.py; do echo; echo "== $$one"; $(BIN)/python $$one || exit 1; done

wheels: install  ## build the four wheels into dist/
	rm -rf dist
	for part in shared coordinator worker cli; do $(BIN)/python -m build -q --wheel --outdir dist $$part || exit 1; done
	@ls dist

release:  ## set VERSION=0.2.0 everywhere, and date the changelog; it neither tags nor pushes
	@$(PYTHON) tools/release.py "$(VERSION)"

clean:  ## remove what the other verbs made
	rm -rf $(VENV) dist .cache .demo shared/build coordinator/build worker/build cli/build
