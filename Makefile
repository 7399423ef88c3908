# One virtual environment in .venv, built again only when pyproject.toml changed.
PYTHON ?= python3
VENV := .venv
PY := $(VENV)/bin/python
STAMP := $(VENV)/.installed
SITE_STAMP := $(VENV)/.installed-site
PIP := $(PY) -m pip install --quiet --disable-pip-version-check
JOBS ?= 2
PYTEST_ARGS ?=
OUT ?= build/validate-gpu

.PHONY: demo test lint format bench book site validate-gpu clean

demo: $(STAMP)  ## what uopc does, in a minute
	$(PY) -m uopc demo

test: lint  ## everything that CI checks; needs no GPU
	$(PY) -m pytest -n $(JOBS) $(PYTEST_ARGS)

lint: $(STAMP)
	$(VENV)/bin/lint-imports
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/mypy

format: $(STAMP)
	$(VENV)/bin/ruff check --fix .
	$(VENV)/bin/ruff format .

bench: $(STAMP)  ## a script that lacks something (a GPU) says so and exits with 3
	@for script in $(sort $(wildcard scratch/bench_*.py)); do \
	  echo "== $$script"; $(PY) $$script || [ $$? -eq 3 ] || exit 1; \
	done

book: $(STAMP)  ## run the chapters and write what they print into them and book/outputs
	$(PY) book/run.py --update

site: $(SITE_STAMP)
	$(VENV)/bin/mkdocs build --strict

# Takes PYTHON as it is: a machine with a GPU brings its own.
validate-gpu:
	$(PYTHON) tools/validate_gpu.py $(OUT)

clean:
	rm -rf build dist site .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache

$(STAMP): pyproject.toml
	test -x $(PY) || $(PYTHON) -m venv $(VENV)
	$(PIP) --editable '.[dev]'
	touch $@

$(SITE_STAMP): $(STAMP)
	$(PIP) --editable '.[site]'
	touch $@
