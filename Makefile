# Each target first prepares .venv, once for every state of pyproject.toml and constraints.txt.
#
#   PYTHON       makes .venv; default: the first of python3.11, python3.12, ... that is >= 3.11
#   PIP_ARGS     handed to pip install, e.g. an --extra-index-url that offers a CPU build of torch
#   PYTEST_ARGS  handed to pytest by `make test` and `make test-long`; default: -n 2, two tests at once
#   DEMO_ARGS    handed to the example by `make demo`, e.g. --quick
#   BENCH_ARGS   handed to every benchmark by `make bench`; default: --quick

VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
EXTRAS := dev,bench
BENCH_ARGS ?= --quick
PYTEST_ARGS ?= -n 2

# A name on the PATH need not run (pyenv shims), so each one is tried.
IS_NEW_ENOUGH := -c 'import sys; sys.exit(sys.version_info < (3, 11))'
PYTHON ?= $(shell for name in python3.11 python3.12 python3.13 python3.14 python3 python; do \
	if $$name $(IS_NEW_ENOUGH) >/dev/null 2>&1; then echo $$name; break; fi; done)

.PHONY: help setup demo test test-long lint bench clean
.DELETE_ON_ERROR:

help:  ## list the targets (default)
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-10s %s\n", $$1, $$2 }' Makefile

setup: $(STAMP)  ## prepare .venv; every other target does it by itself

demo: $(STAMP)  ## the main job: sweep beta on hourly weather; table, picture and CSV
	$(BIN)/python examples/plot_01_beta_sweep.py $(DEMO_ARGS)

test: $(STAMP)  ## the default test suite
	$(BIN)/python -m pytest $(PYTEST_ARGS)

test-long: $(STAMP)  ## the whole test suite, with the tests that take minutes
	$(BIN)/python -m pytest -m "" $(PYTEST_ARGS)

lint: $(STAMP)  ## ruff, and mypy on the numerical core
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: $(STAMP)  ## every benchmark with --quick; fails at the end if one missed a target
	status=0; for file in benchmarks/bench_*.py; do \
	$(BIN)/python $$file $(BENCH_ARGS) || status=1; done; exit $$status

clean:  ## remove caches and builds; .venv stays
	rm -rf build dist .mypy_cache .pytest_cache .ruff_cache
	find . -name __pycache__ -not -path './$(VENV)/*' -prune -exec rm -rf {} +

$(BIN)/python:
	@$(or $(PYTHON),false) $(IS_NEW_ENOUGH) || { echo "sklearn_restrans needs Python 3.11 or newer;" \
	"'$(PYTHON)' is not. Name one: make PYTHON=/path/to/python3.11" >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)

# A torch that is already in .venv is kept: its version replaces the pin.
$(STAMP): pyproject.toml constraints.txt | $(BIN)/python
	@torch=$$($(BIN)/python -c 'from importlib.metadata import version; print(version("torch"))' \
	2>/dev/null) || { torch=$$(sed -n 's/^torch==//p' constraints.txt); \
	echo "Installing torch $$torch: on Linux the usual build holds CUDA, several GB to download."; \
	echo "For a CPU build stop here and say: make PIP_ARGS='--extra-index-url INDEX' ..., INDEX being"; \
	echo "the CPU index that PyTorch's own installation page names."; }; \
	sed "s/^torch==.*/torch==$$torch/" constraints.txt > $(VENV)/constraints.txt
	$(BIN)/python -m pip install $(PIP_ARGS) -c $(VENV)/constraints.txt -e ".[$(EXTRAS)]"
	@touch $@
