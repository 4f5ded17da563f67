# The whole process. `make demo` alone and `make test` alone do the set-up that they need.
PYTHON ?= $(shell command -v python3.11 || command -v python3)
BIN := .venv/bin
export HF_HUB_OFFLINE := 1
# Two workers that each use two threads wait for each other more than they compute.
ONE_THREAD := OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1
# Compiled tests are kept, so that each worker need not rewrite their asserts again.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: setup demo test lint browser screenshots mistakes docs bench bench-gpu coverage faults sanitize torture newest
.DEFAULT_GOAL := help

.PHONY: help
help: ## print this list
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/make \1|\2/p' $(MAKEFILE_LIST) | awk -F'|' '{printf "%-18s%s\n", $$1, $$2}'

# The stamp names what the environment was made from, so a changed requirement renews it.
.venv/made: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	touch $@

setup: .venv/made ## create .venv and install the package with its development tools

demo: setup ## train a small model on two cores, let it write, explain one number, verify it
	@PATH="$(BIN):$$PATH" sh scripts/demo.sh

test: lint ## format, lint, types and every test, as CI runs them
	$(ONE_THREAD) $(BIN)/python -m pytest -n 2 --dist worksteal -m "not timed and not torture"
	$(BIN)/python -m pytest -m timed $(shell grep -rl mark.timed tests)

lint: setup ## ruff format and check, mypy strict
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

CHROMIUM := apt-get install -y --no-install-recommends chromium fonts-stix

browser: ## install Debian's Chromium for the tests of the page, where it is missing and the user is root
	@if command -v chromium > /dev/null; then :; \
	elif [ "$$(id -u)" = 0 ] && command -v apt-get > /dev/null; \
	then apt-get update && $(CHROMIUM) || echo "no chromium: the tests of the page are skipped."; \
	else echo "no chromium: the tests of the page are skipped. As root: apt-get update && $(CHROMIUM)"; fi

screenshots: setup ## pictures of every screen of the explorer, light, dark and at 320 px, into screenshots/
	$(BIN)/python -m scripts.screenshots

mistakes: setup ## the table of mistakes: what catches each, and what the lessons' worksheets show of them
	$(BIN)/python scripts/mistakes_table.py $(LESSONS)

docs: setup ## regenerate every page that the code can write
	$(BIN)/python scripts/generate_docs.py

bench: setup ## speed beside its limit and its peers; PELLUCID_DATA names a folder with texts, PELLUCID_SMOLLM2 a .gguf
	$(BIN)/python -m benchmarks.specification
	$(BIN)/python -m benchmarks.text
	$(BIN)/python -m benchmarks.engine
	$(BIN)/python -m benchmarks.attention
	$(BIN)/python -m benchmarks.training
	! command -v chromium > /dev/null || $(BIN)/python -m benchmarks.explorer
	$(BIN)/python -m benchmarks.server
	[ -z "$$PELLUCID_SMOLLM2" ] || $(BIN)/python -m benchmarks.smollm2

bench-gpu: setup ## training and decoding on a GPU beside peers; PELLUCID_DATA names a folder with shakespeare.txt and books
	$(BIN)/python -m pytest -q tests/engine/gpu
	$(BIN)/python -m benchmarks.gpu_decoding
	$(BIN)/python -m benchmarks.gpu step
	[ -z "$$PELLUCID_DATA" ] || $(BIN)/python -m benchmarks.gpu shakespeare
	[ -z "$$PELLUCID_DATA" ] || $(BIN)/python -m benchmarks.gpu books

coverage: setup ## the lines of pellucid/ that the tests run, the least covered files first; fails below 92 %
	$(BIN)/coverage erase
	-$(ONE_THREAD) $(BIN)/coverage run -m pytest -n 2 -q -m "not timed and not torture" $(TESTS)
	-$(BIN)/coverage combine -q 2>/dev/null; rm -f .coverage.*  # a killed process leaves half a file
	@$(BIN)/coverage report --sort=cover | sed -n 1,30p
	@$(BIN)/coverage report --format=total --fail-under=92

faults: setup ## every planted fault and 200 drawn mutations, what found each, the power of the checks, and every healthy model
	$(ONE_THREAD) $(BIN)/python -m tests.faults.table
	$(ONE_THREAD) PELLUCID_ROTATION=all $(BIN)/python -m pytest -n 2 -q tests/faults/test_healthy.py

sanitize: setup ## the tests of the compiled decoder under the address and undefined-behavior sanitizers
	@PATH="$(BIN):$$PATH" sh scripts/sanitize.sh

torture: setup ## the full counts, other instruction sets and threads, the newest packages; PARTS names some
	$(BIN)/python scripts/torture.py $(PARTS)

newest: setup ## the suite with the newest release of every package, in .venv-newest, and which are newer
	@PYTHON="$(PYTHON)" sh scripts/newest.sh
