# The verbs of the project. `make demo` shows it, `make test` proves it; both set up all they need.
SHELL := bash
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

.PHONY: help install demo test lint unit bench wheels clean

help:  ## this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /\1\t/' | expand -t 12

install: $(VENV)/.installed  ## make .venv with all four parts and the tools

$(VENV)/.installed: constraints.txt pyproject.toml shared/pyproject.toml coordinator/pyproject.toml worker/pyproject.toml cli/pyproject.toml
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "deborgen needs Python 3.11 or newer")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install -q -c constraints.txt pip
	$(BIN)/python -m pip install -q -c constraints.txt --group dev \
	    -e './shared[http]' -e './coordinator[postgres]' -e ./worker -e ./cli
	touch $@

lint: install  ## ruff, mypy --strict, import-linter
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

wheels: install  ## build the four wheels into dist/
	rm -rf dist
	for part in shared coordinator worker cli; do $(BIN)/python -m build -q --wheel --outdir dist $$part || exit 1; done
	@ls dist

clean:  ## remove what the other verbs made
	rm -rf $(VENV) dist build .cache .demo
