# make demo   the main job, on a small model       make test    everything that must hold
# make check  style and types only                 make bench   timings beside other tools

PYTHON ?= python3
BIN := .venv/bin
READY := .venv/.ready

.PHONY: setup demo test check bench clean

setup: $(READY)

# The stamp depends on what decides the contents of the environment, so set-up is quick when it stands.
$(READY): pyproject.toml constraints.txt setup.py $(wildcard src/hookline/lines/_kernel*.[ch])
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --constraint constraints.txt torch==2.13.0
	$(BIN)/pip install --quiet --constraint constraints.txt --editable '.[torch,dev]'
	touch $(READY)

demo: setup
	$(BIN)/python examples/digits.py

check: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

test: check
	$(BIN)/pytest -q -n 2

bench: setup
	$(BIN)/pip install --quiet --constraint constraints.txt --editable '.[torch,dev,bench]'
	$(BIN)/python -m bench

clean:
	rm -rf .venv build src/*.egg-info src/hookline/lines/_kernel*.so
