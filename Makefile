# Each target makes its own virtual environment in .venv; nothing else is needed than Python 3.11+.
# The optional compiled core (speed/) is built into it where Rust is installed.
#   make demo | test | lint | bench      and, for developers:   make places | lock | clean
# Another interpreter: make PYTHON=/path/to/python3 test

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

PYTHON ?=
VENV := .venv
READY := $(VENV)/.ready
BIN := $(VENV)/bin
CANDIDATES := python3 python3.14 python3.13 python3.12 python3.11
CHECK := import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))
# The distribution's pip may be set up to write elsewhere or to nag; neither belongs here.
PIP := $(BIN)/python -m pip --disable-pip-version-check --require-virtualenv install --quiet

.PHONY: help demo test lint bench places core lock clean

help:
	@sed -n '1,4p' Makefile

demo: core
	$(BIN)/python -m examples.flights

# Two workers: a third makes the JVMs of two cores wait for each other, and all of it slower. The
# groups of tests that start JVMs (tests/apache/conftest.py) begin first, one at each.
test: lint
	$(BIN)/pytest -n 2 --dist loadgroup $(TESTS)
	@if [ -e $(VENV)/.speed ]; then echo 'and on plain Python, what the compiled core takes part in:'; \
	    ORBITMQ_SPEED=0 $(BIN)/pytest -n 2 --dist loadgroup $(or $(TESTS),@tests/both_cores.txt); fi

lint: core
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	@if cargo fmt --version >/dev/null 2>&1; then \
	    for crate in speed benchmarks/driver; do (cd $$crate && cargo fmt --check); done; fi
	@if [ -e $(VENV)/.speed ] && cargo clippy --version >/dev/null 2>&1; then \
	    for crate in speed benchmarks/driver; do (cd $$crate && \
	        cargo clippy --quiet --all-targets --target-dir target/lint -- --deny warnings); done; fi

bench: core
	$(BIN)/python -m benchmarks

# Spark where it runs: the tests of it, and what of them takes too long for `make test`.
places: core
	ORBITMQ_PLACES=1 $(BIN)/pytest tests/docs/test_spark_places.py tests/docs/test_spark_pipelines.py \
	    tests/docs/test_notebook.py

# Says in one line which core runs: plain Python, and why, where the compiled one cannot be built.
core: $(READY)
	@$(BIN)/python speed/install.py

# Build tools first, so that source distributions are built with locked, hash-checked tools too.
$(READY): requirements-build.lock requirements.lock pyproject.toml
	@python=''; \
	for candidate in $(or $(PYTHON),$(CANDIDATES)); do \
	    if "$$candidate" -c '$(CHECK)' 2>/dev/null; then python="$$candidate"; break; fi; \
	done; \
	if [ -z "$$python" ]; then \
	    echo 'OrbitMQ needs Python 3.11 or newer with its venv module; tried:' \
	        '$(or $(PYTHON),$(CANDIDATES)).' >&2; \
	    echo 'Install it (Debian, Ubuntu: apt install python3-venv) or name one:' \
	        'make PYTHON=/path/to/python3 test' >&2; \
	    exit 1; \
	fi; \
	echo "making $(VENV) with $$("$$python" --version), a few minutes the first time"; \
	"$$python" -m venv $(VENV)
	$(PIP) --require-hashes -r requirements-build.lock
	$(PIP) --require-hashes --no-build-isolation -r requirements.lock
	$(PIP) --no-deps --no-build-isolation --editable .
	@touch $@

# New locked versions: `make lock`, then review the diff.
lock: $(READY)
	printf '%s\n' 'hatchling>=1.27,<2' 'setuptools>=77' 'wheel>=0.45' 'maturin>=1.9,<2' \
	    | $(COMPILE) - -o requirements-build.lock
	$(COMPILE) --all-extras pyproject.toml -o requirements.lock

COMPILE = $(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes \
          --no-header --no-annotate --upgrade --no-emit-package orbitmq-speed

clean:
	rm -rf $(VENV) speed/target benchmarks/driver/target build/driver .mypy_cache .ruff_cache .pytest_cache .hypothesis dist
