# The project's commands. `make` alone lists them. Each one makes its own environment.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# The extra sets share one environment: dev holds all that demo needs.
DEMO := $(VENV)/.installed-demo
DEV := $(VENV)/.installed-dev
PACKAGES := modelsup.supervisor modelsup.worker modelsup.client modelsup.cli

.PHONY: help demo test lint types unit docs bench wheel venv clean

help: ## List the targets
	@grep -hE '^[a-z]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-8s %s\n", $$1, $$2}'

demo: $(DEMO) ## Show what modelsup does, on this machine, with real models
	$(BIN)/python -m examples.demo

test: lint types docs ## Run every check and every test
	$(BIN)/pytest

lint: $(DEV) ## Check style, spelling and the direction of imports
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/codespell
	$(BIN)/lint-imports

types: $(DEV) ## Check the types
	$(BIN)/mypy $(addprefix -p ,$(PACKAGES))

unit: $(DEV) ## Run the fast tests alone
	$(BIN)/pytest tests/unit

docs: $(DEV) ## Build the documentation into docs/_build/html; a warning is an error
	$(BIN)/sphinx-build -W --keep-going -q -b html docs docs/_build/html

bench: $(DEV) ## Measure swaps, memory and throughput against other ways to serve
	$(BIN)/python -m benchmarks

wheel: $(DEV) ## Build a wheel into dist/
	rm -rf build
	$(BIN)/python -m build --wheel --no-isolation

venv: $(DEV) ## Make .venv and install the project with its tools

clean: ## Remove what the other targets made, except .venv
	rm -rf build dist docs/_build *.egg-info .mypy_cache .pytest_cache .ruff_cache .hypothesis .import_linter_cache
	find . -path ./$(VENV) -prune -o -type d -name __pycache__ -print0 | xargs -0 rm -rf

$(BIN)/python:
	@command -v $(PYTHON) >/dev/null || { echo "make: no $(PYTHON) here. Install Python 3.11 or newer, or name one: make PYTHON=/path/to/python3.11" >&2; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "make: $(PYTHON) is $$($(PYTHON) -V), and modelsup needs Python 3.11 or newer. Name one: make PYTHON=/path/to/python3.11" >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' || { echo "make: $(PYTHON) cannot make environments. On Debian or Ubuntu: apt-get install python3-venv" >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)

$(DEMO): setup.cfg pyproject.toml | $(BIN)/python
	@echo "Installing modelsup with TensorFlow into $(VENV): some minutes the first time"
	$(BIN)/python -m pip install --editable '.[tensorflow,demo]'
	touch $@

$(DEV): setup.cfg pyproject.toml | $(BIN)/python
	@echo "Installing modelsup with TensorFlow and the development tools into $(VENV): some minutes the first time"
	$(BIN)/python -m pip install --editable '.[tensorflow,dev]'
	@# What this one asks for is the same TensorFlow under another name.
	$(BIN)/python -m pip install --no-deps 'tensorflow-serving-api>=2.19'
	touch $(DEMO) $@
