# make demo   the main job, on a small model       make test    everything that must hold
# make check  style and types only                 make bench   timings beside other tools
# make bench-diagnosis   what `hookline run` says of broken and healthy trainings: docs/diagnosis.md
# make bench-diff      what `hookline.diff` says of models that part, and of equal ones: docs/diff.md
# make bench-peers     the same work with hookline and other tools: docs/peers.md
# make test-trainers   the callbacks in real fastai, Lightning, transformers, Accelerate and Keras
# make test-browser    the page and the report in a real Chromium
# make test-frameworks   the conformance suite on each framework, and their records compared
# make test-versions   the contract on other versions of torch; PYTHON=python3.13 for another Python
# make test-sinks      what TensorBoard, wandb, MLflow, trackio and Parquet readers find of a run
# make test-sanitized  the kernel's tests, on C that watches its memory and its arithmetic
# make test-quick      the tests that take no time, for every change       make dist   what is published
# make -j 2 packages   what all the environments need; then make environments, without -j: .ci/run does both
# make docs            the site of the docs, in site/                       make wheels   for this platform, in dist/

# Some packages are large, and pip gives up on a registry that is silent for 15 s.
export PIP_DEFAULT_TIMEOUT ?= 180

PYTHON ?= python3
BIN := .venv/bin
READY := .venv/.ready

TRAINERS := .venv-trainers
TRAINERS_READY := $(TRAINERS)/.ready
PEERS := .venv-peers
PEERS_READY := $(PEERS)/.ready
SINKS := .venv-sinks
SINKS_READY := $(SINKS)/.ready

# Suites that need an environment of their own.
SUITES := tests/environments

# A framework is a folder of tests with requirements, and has an environment of its own.
FRAMEWORKS := $(patsubst $(SUITES)/frameworks/%/requirements.txt,%,$(wildcard $(SUITES)/frameworks/*/requirements.txt))

# Modules of tests that mostly compile or start processes, or took 8 s of processor time or more. `make test-quick` has
# all the others.
SLOW := test_bench_diff.py test_blocks.py test_cli.py test_compiled.py test_compiled_gradients.py test_compiled_zoo.py \
	test_demo.py test_doctor.py test_export.py test_findings.py test_files.py test_findings_outputs.py test_fuzz_runs.py \
	test_hostile_runs.py test_interrupts.py test_law.py test_law_compiled.py test_leaving.py test_lifetimes.py \
	test_lines_laws.py test_lines_reduce.py test_operators_compiled.py test_order.py test_page.py test_page_lasting.py \
	test_page_security.py test_plots.py \
	test_architectures.py test_left_as_it_was.py test_properties_kept.py test_properties_lost.py test_probe.py \
	test_progress_shown.py test_run_folders.py test_run_recordings.py test_run_store.py test_runs_faults.py \
	test_seed_mindspore.py test_summary_numbers.py test_threads.py test_torch_private.py test_tracers.py \
	test_versions.py test_view.py test_weight_edits.py compiled.md

# Other versions of torch, each in a folder of its own, beside an environment that has none.
TORCHES ?= 2.6.0 2.14.1 2.15.0
VERSIONS := .venv-versions-$(shell $(PYTHON) -c 'import sys; print("%d.%d" % sys.version_info[:2])')
CONTRACT ?= tests/project/test_versions.py \
	$(addprefix tests/contract/,test_zoo.py test_contract.py test_properties.py test_blocks.py test_threads.py \
		law/test_law.py law/test_findings.py law/test_findings_outputs.py law/test_findings_writes.py \
		law/test_findings_threads.py) \
	$(addprefix tests/backends/torch/,test_torch_private.py test_gradients.py test_compiled.py \
		test_compiled_gradients.py)

# C that ends the process where it reads or writes beyond memory, or where C says nothing of what is computed.
SANITIZED := build/sanitized
SANITIZED_READY := $(SANITIZED)/.ready
SANITIZED_TESTS := $(addprefix tests/lines/,test_direct.py test_lines_laws.py test_lines_reduce.py test_sheet.py) \
	$(addprefix tests/backends/torch/,test_copies.py test_pool.py test_simple_calls.py test_gradients.py) \
	$(addprefix tests/hooks/,test_quick_taps.py test_pending.py test_site_tap.py) \
	tests/watching/test_fingerprint.py tests/diffs/test_measures.py
SANITIZE := -std=c11 -O2 -g -fno-omit-frame-pointer -fsanitize=address,undefined -fno-sanitize-recover=all -shared -fPIC

DIST := .venv-dist
DIST_READY := $(DIST)/.ready
DOCS := .venv-docs
DOCS_READY := $(DOCS)/.ready
WHEELS := .venv-wheels
VERSION := $(shell sed -n 's/^__version__ = "\(.*\)"$$/\1/p' src/hookline/version.py)

.PHONY: setup packages environments demo test test-quick test-trainers test-frameworks test-versions test-sinks \
	test-browser test-sanitized check style types dist sdist wheels docs is-tagged notes bench bench-diagnosis bench-diff bench-peers clean
.SECONDARY:

setup: $(READY)

# The stamp depends on what decides the contents of the environment, so set-up is quick when it stands.
$(READY): pyproject.toml constraints.txt setup.py $(shell find src/hookline -name '_*.[ch]')
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --constraint constraints.txt torch==2.13.0
	find src/hookline -name '_*.so' -delete # one of an older set-up may have another name, and would be found first
	$(BIN)/pip install --quiet --constraint constraints.txt --editable '.[torch,dev]'
	touch $(READY)

demo: setup
	$(BIN)/hookline demo

check: style types

style: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: setup
	$(BIN)/mypy

test: check
	$(BIN)/pytest -q -n 2 --durations=20

test-quick: setup
	$(BIN)/pytest -q -n 2 --durations=10 $(patsubst %,--ignore-glob='*/%',$(SLOW))

# A copy of the package, so that the C of the environment stays as it is. The sanitizer has to be loaded before Python is;
# what Python itself never gives back is not looked at. libstdc++ is loaded with it, or it does not find how to throw.
# The kernel has AVX-512 on every processor with AVX2, by a header that does the same; -O1, or it would compile for minutes.
$(SANITIZED_READY): $(READY) Makefile tests/lines/avx512_by_avx2.h \
		$(shell find src/hookline -type f ! -name '*.so' ! -name '*.pyc')
	rm -rf $(SANITIZED)
	mkdir -p $(SANITIZED)
	cp -r src/hookline $(SANITIZED)/
	find $(SANITIZED)/hookline -name '_*.so' -delete
	$(CC) $(SANITIZE) -O1 -include tests/lines/avx512_by_avx2.h src/hookline/lines/_kernel.c -o $(SANITIZED)/hookline/lines/_kernel.abi3.so
	for part in backends/_again backends/_direct backends/_tap backends/_under_way backends/_entries backends/torch/eager/_calls \
		backends/torch/grads/_simple diffs/_apart; do \
		$(CC) $(SANITIZE) -fopenmp-simd -DPy_LIMITED_API=0x030B0000 \
			-I"$$($(BIN)/python -c 'import sysconfig as s; print(s.get_path("include"))')" \
			src/hookline/$$part.c -o $(SANITIZED)/hookline/$$part.abi3.so || exit 1; \
	done
	touch $@

test-sanitized: $(SANITIZED_READY)
	ASAN_OPTIONS=detect_leaks=0 PYTHONPATH=$(SANITIZED) \
		LD_PRELOAD="$$($(CC) -print-file-name=libasan.so) $$($(CC) -print-file-name=libstdc++.so)" \
		$(BIN)/pytest -q -n 2 $(SANITIZED_TESTS)

# What .ci/run makes two at a time. An editable install is none of it: each writes C into src, where the others find it.
packages: $(TRAINERS)/.packages $(SINKS)/.packages $(patsubst %,.venv-%/.packages,$(FRAMEWORKS)) \
	$(DIST_READY) $(DOCS_READY) $(SANITIZED_READY)

# hookline in every environment: one after another (no -j), and while no test runs.
environments: setup $(TRAINERS_READY) $(SINKS_READY) $(patsubst %,.venv-%/.ready,$(FRAMEWORKS))

# An environment of its own: these libraries are heavy, and hookline must not need any of them.
$(TRAINERS)/.packages: $(SUITES)/trainers/requirements.txt constraints.txt
	$(PYTHON) -m venv $(TRAINERS)
	$(TRAINERS)/bin/pip install --quiet --constraint constraints.txt torch==2.13.0
	$(TRAINERS)/bin/pip install --quiet --constraint constraints.txt --requirement $(SUITES)/trainers/requirements.txt
	$(TRAINERS)/bin/pip install --quiet --no-deps fastai==2.8.12
	touch $@

$(TRAINERS_READY): $(TRAINERS)/.packages
	$(TRAINERS)/bin/pip install --quiet --no-deps --editable .
	touch $@

test-trainers: $(TRAINERS_READY)
	$(TRAINERS)/bin/pytest -q $(SUITES)/trainers

# Debian's chromium is installed where it is missing and may be; without a browser the tests are skipped.
.venv/.browser: $(READY) $(SUITES)/browser/requirements.txt
	$(BIN)/pip install --quiet --constraint constraints.txt --requirement $(SUITES)/browser/requirements.txt
	command -v chromium > /dev/null || [ "$$(id -u)" != 0 ] || ! command -v apt-get > /dev/null \
		|| { apt-get update -qq && apt-get install -y -qq chromium > /dev/null; }
	touch .venv/.browser

test-browser: .venv/.browser
	$(BIN)/pytest -q $(SUITES)/browser

.venv-%/.packages: $(SUITES)/frameworks/%/requirements.txt
	$(PYTHON) -m venv .venv-$*
	.venv-$*/bin/pip install --quiet --requirement $(SUITES)/frameworks/$*/requirements.txt
	touch $@

.venv-%/.ready: .venv-%/.packages pyproject.toml setup.py
	.venv-$*/bin/pip install --quiet --no-deps --editable .
	touch $@

# Its own tests, its page of the docs, and its records, which are compared at the end.
framework-%: .venv-%/.ready
	.venv-$*/bin/pytest -q -c $(SUITES)/frameworks/pytest.ini $(SUITES)/frameworks/$* docs/frameworks/$*.md

test-frameworks: setup $(addprefix framework-,$(FRAMEWORKS))
	$(BIN)/pytest -q -c $(SUITES)/frameworks/pytest.ini $(SUITES)/frameworks/test_across.py \
		$(SUITES)/frameworks/test_across_diff.py

$(VERSIONS)/.ready: $(SUITES)/versions/requirements.txt constraints.txt setup.py
	$(PYTHON) -m venv $(VERSIONS)
	$(VERSIONS)/bin/pip install --quiet --constraint constraints.txt --requirement $(SUITES)/versions/requirements.txt
	$(VERSIONS)/bin/pip install --quiet --no-deps --editable .
	touch $@

# 1.2 to 1.8 GB; without CUDA's libraries, which would be several times that.
$(VERSIONS)/torch-%/.ready: $(VERSIONS)/.ready
	$(VERSIONS)/bin/pip install --quiet --no-deps --upgrade --target $(@D) torch==$*
	$(VERSIONS)/bin/python $(SUITES)/versions/cuda.py $(@D)/torch
	touch $@

version-%: $(VERSIONS)/torch-%/.ready
	PYTHONPATH=$(VERSIONS)/torch-$* $(VERSIONS)/bin/pytest -q $(CONTRACT)

test-versions: $(addprefix version-,$(TORCHES))

# The same for what sinks write to.
$(SINKS)/.packages: $(SUITES)/sinks/requirements.txt constraints.txt
	$(PYTHON) -m venv $(SINKS)
	$(SINKS)/bin/pip install --quiet --constraint constraints.txt torch==2.13.0
	$(SINKS)/bin/pip install --quiet --constraint constraints.txt --requirement $(SUITES)/sinks/requirements.txt
	touch $@

$(SINKS_READY): $(SINKS)/.packages
	$(SINKS)/bin/pip install --quiet --no-deps --editable .
	touch $@

test-sinks: $(SINKS_READY)
	$(SINKS)/bin/pytest -q $(SUITES)/sinks

# What is published: built, looked at and installed, also without a compiler.
$(DIST_READY): $(SUITES)/dist/requirements.txt constraints.txt
	$(PYTHON) -m venv $(DIST)
	$(DIST)/bin/pip install --quiet --constraint constraints.txt --requirement $(SUITES)/dist/requirements.txt
	touch $(DIST_READY)

dist: $(DIST_READY)
	$(DIST)/bin/pytest -q -c $(SUITES)/dist/pytest.ini $(SUITES)/dist

# By cibuildwheel: in a container on Linux, with Pythons of its own on macOS and Windows (where scripts lie elsewhere).
wheels:
	$(PYTHON) -m venv $(WHEELS)
	$(WHEELS)/$(if $(filter Windows_NT,$(OS)),Scripts,bin)/python -m pip install --quiet cibuildwheel==4.3.3
	$(WHEELS)/$(if $(filter Windows_NT,$(OS)),Scripts,bin)/python -m cibuildwheel --output-dir dist

sdist: $(DIST_READY)
	$(DIST)/bin/python -m build --no-isolation --sdist --outdir dist .

# make is-tagged TAG=v0.1.0: whether that is the tag of this version, which the changelog has.
is-tagged:
	@[ "$(TAG)" = "v$(VERSION)" ] || { echo "expected the tag v$(VERSION), got '$(TAG)'"; exit 1; }
	@[ -n "$$($(MAKE) --silent notes)" ] || { echo "CHANGELOG.md has nothing of $(VERSION)"; exit 1; }

# What the changelog says of this version.
notes:
	@awk '/^## /{on = $$2 == "$(VERSION)"; next} on' CHANGELOG.md

$(DOCS_READY): docs/requirements.txt constraints.txt
	$(PYTHON) -m venv $(DOCS)
	$(DOCS)/bin/pip install --quiet --constraint constraints.txt --requirement docs/requirements.txt
	touch $(DOCS_READY)

docs: $(DOCS_READY)
	NO_MKDOCS_2_WARNING=1 $(DOCS)/bin/mkdocs build --quiet --strict --site-dir site

bench: setup
	$(BIN)/pip install --quiet --constraint constraints.txt --editable '.[torch,dev,bench]'
	$(BIN)/python -m bench

# Writes docs/diagnosis.md.
bench-diagnosis: setup
	$(BIN)/python -m bench.diagnosis --repaired --write

# Writes a section of docs/diff.md.
bench-diff: setup
	$(BIN)/python -m bench.diff --write

# Other tools, in an environment of their own. None of them may bring another torch, or CUDA.
$(PEERS_READY): bench/requirements.txt constraints.txt
	$(PYTHON) -m venv $(PEERS)
	$(PEERS)/bin/pip install --quiet --constraint constraints.txt torch==2.13.0
	$(PEERS)/bin/pip install --quiet --constraint constraints.txt --requirement bench/requirements.txt
	$(PEERS)/bin/pip install --quiet --no-deps fastai==2.8.12
	$(PEERS)/bin/pip install --quiet --no-deps --editable .
	touch $(PEERS_READY)

# Writes docs/peers.md and docs/peers.png.
bench-peers: $(PEERS_READY)
	$(PEERS)/bin/python -m bench --peers

clean:
	rm -rf .venv $(TRAINERS) $(PEERS) $(SINKS) $(DIST) $(DOCS) $(WHEELS) $(addprefix .venv-,$(FRAMEWORKS)) .venv-versions-*
	rm -rf build dist site src/*.egg-info
	find src/hookline -name '_*.so' -delete
