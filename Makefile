# Every target makes .venv itself; nothing else has to be installed first.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
INSTALL := $(BIN)/uv pip install --quiet --python $(BIN)/python --constraint constraints.txt
ALL := --editable '.[test,lint,datasets,docs]'

# else every process that a test starts would compile all libraries again
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo test test-slow test-oldest lint format bench bench-trees docs docs-version release-check clean

$(READY): pyproject.toml studies/pyproject.toml constraints.txt excluded.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt uv
# torch comes by pip, which may be told of a build for CPUs; meanwhile uv installs all else
	(cat excluded.txt; echo torch) >$(VENV)/not-yet.txt
	$(BIN)/python -m pip install --quiet --no-deps --constraint constraints.txt torch & torch=$$!; \
	$(INSTALL) --excludes $(VENV)/not-yet.txt $(ALL) && wait $$torch
	$(INSTALL) --excludes excluded.txt $(ALL)
	$(INSTALL) --no-deps --editable studies
	touch $@

demo: $(READY)
	$(BIN)/fairij demo --out demo-output --random-state 0 --force

test: $(READY)
	$(BIN)/python -m pytest -n 2 --dist worksteal

test-slow: $(READY)
	$(BIN)/python -m pytest -m slow

# with the oldest versions that pyproject.toml allows; a part of test-slow
test-oldest: $(READY)
	$(BIN)/python -m pytest -m slow tests/cli/test_oldest_versions.py

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(READY)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(READY)
	$(BIN)/python -m benchmarks.engine

bench-trees: $(READY)
	OMP_NUM_THREADS=1 $(BIN)/python -m benchmarks.trees
	OMP_NUM_THREADS=1 $(BIN)/python -m benchmarks.trees_search

docs: $(READY)
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

# one more version of the site on the branch gh-pages, as in `make docs-version VERSION=0.2`
docs-version: $(READY)
	PATH="$(abspath $(BIN)):$$PATH" NO_MKDOCS_2_WARNING=1 mike deploy --update-aliases $(VERSION) latest

release-check: $(READY)
	$(BIN)/python tools/release_check.py

clean:
	rm -rf $(VENV) demo-output build dist .pytest_cache .mypy_cache .ruff_cache
