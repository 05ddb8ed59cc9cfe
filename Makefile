# Needs Python 3.11 or newer and make, nothing else: everything is installed into .venv.
PYTHON ?= $(or $(shell command -v python3.11),$(shell command -v python3))
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet
# Compiled files are kept, also where a container says otherwise: every process of the tests would compile anew.
export PYTHONDONTWRITEBYTECODE :=
# Each of two processes computes in one thread, as the commands do; one file's tests stay together while they can.
TESTED := OPENBLAS_NUM_THREADS=1 $(BIN)/pytest -q -n 2 --dist worksteal
PACKAGES := engine formulations solvers topology perfmodels instances verification comparisons replay library serve adapters cli
CODE := $(PACKAGES) tests docs/hooks examples $(wildcard benchmarks)

.DEFAULT_GOAL := help
.PHONY: help demo test check computing waiting lint imports types unit jitter fuzz bench library results site dist clean

help:  ## Say what can be made
	@sed -n 's/^\([a-z]*\):.*## /  make \1\t/p' $(MAKEFILE_LIST)

demo: $(VENV)/package  ## Solve the bundled instance and show the decision
	@$(BIN)/wattsched solve examples/demo.json --gap 1e-6

test: lint types unit  ## Lint, types and the core of the tests: five minutes

check: lint types  ## Everything, with fresh examples: SEED=7 for those of a run before
	$(MAKE) --jobs 2 --keep-going computing waiting SEED=$(or $(SEED),$(shell date +%s))

computing:
	CHECK=1 $(TESTED) --hypothesis-seed $(SEED) -m 'not real' $(TESTS)

# Tests on a real Slurm or Kubernetes wait most of the time: one process more, which tells what it found at its end.
waiting:
	@CHECK=1 OPENBLAS_NUM_THREADS=1 $(BIN)/pytest -q -m real $(TESTS) > $(VENV)/real.log 2>&1; code=$$?; cat $(VENV)/real.log; test $$code -eq 0 -o $$code -eq 5

lint: $(VENV)/tools $(VENV)/package  ## Style, format, and imports that run one way
	$(BIN)/ruff check $(CODE)
	$(BIN)/ruff format --check $(CODE)
	cd $(VENV) && bin/lint-imports --config ../pyproject.toml --no-cache

imports: $(VENV)/tools $(VENV)/package  ## Draw which part imports which, as a graph for Graphviz
	@cd $(VENV) && bin/import-linter drawgraph wattsched --show-import-totals

types: $(VENV)/tools $(VENV)/package  ## Types of the package
	MYPYPATH=src $(BIN)/mypy --cache-dir $(VENV)/.mypy_cache -p wattsched

unit: $(VENV)/tools $(VENV)/package  ## Quick tests: TESTS='tests/cli -k solve' for some
	$(TESTED) -m 'not slow' $(TESTS)

jitter: $(VENV)/tools $(VENV)/package  ## The tests that ask solvers, with other last digits: SEED=2 for others again
	$(TESTED) --jitter $(or $(SEED),1) -m 'not slow' tests/engine tests/formulations tests/solvers tests/verification \
		tests/replay tests/docs

fuzz: $(VENV)/tools $(VENV)/package  ## Hostile files to every reader for an hour: SECONDS=60 SEED=7 for a minute of others
	FUZZ_SECONDS=$(or $(SECONDS),3600) FUZZ_SEED=$(or $(SEED),0) $(BIN)/pytest -q tests/fuzz

bench: $(VENV)/bench $(VENV)/package  ## Run the benchmark suite, half an hour; BENCH='--limit 600' for longer runs
	$(BIN)/python -m benchmarks.suite --write $(BENCH)

library: $(VENV)/bench $(VENV)/package  ## Six solvers on the library of instances, hours, resumed: LIBRARY='--limit 30 --dask local:2'
	$(BIN)/python -m benchmarks.library --folder $(VENV)/library --write $(LIBRARY)

# The longest first; stopped in the middle, the next call goes on with the others, until a source changes.
RESULTS := online_price pacing knowledge placement budgets replay_bounds savings grounds elastic studies.eaco
$(foreach name,budgets replay_bounds savings knowledge,$(eval OPTIONS_$(name) := --processes 1))
$(foreach name,online_price placement,$(eval OPTIONS_$(name) := --runs $(VENV)/results/$(name).jsonl))
OPTIONS_pacing := --processes 1 --runs $(VENV)/results/pacing.jsonl
results: $(VENV)/tools $(VENV)/package  ## Make the tables for docs/results.md anew, some hours, resumed; needs WATTSCHED_DATA
	$(MAKE) --jobs 2 --keep-going $(RESULTS:%=$(VENV)/results/%)

$(VENV)/results/%: $(shell find $(PACKAGES) benchmarks -name '*.py' -o -name '*.json') constraints.txt
	mkdir -p $(VENV)/results
	for source in $^; do if [ $$source -nt $@.jsonl ]; then rm -f $@.jsonl; fi; done
	OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 $(BIN)/python -m benchmarks.$* --write $(OPTIONS_$*)
	touch $@

site: $(VENV)/tools $(VENV)/package  ## Build the documentation into site/; a broken link or reference is an error
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

dist: $(VENV)/tools  ## Build what is released into dist/: a source distribution, and of it a wheel
	rm -rf dist
	$(BIN)/pyproject-build --outdir dist .

clean:  ## Remove what was built
	rm -rf $(VENV) dist site .mypy_cache .pytest_cache .ruff_cache .hypothesis

$(BIN)/python:
	@test -n "$(PYTHON)" || { echo "Python 3.11 or newer is needed, and no python3 is on the PATH" >&2; exit 1; }
	@"$(PYTHON)" -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed, found " + sys.version)'
	"$(PYTHON)" -m venv $(VENV)

# An editable install: it sees the folders of the checkout by the links in src/wattsched.
$(VENV)/package: $(BIN)/python pyproject.toml constraints.txt src/wattsched/__init__.py
	@echo "installing wattsched into $(VENV)"
	@$(PIP) install -c constraints.txt -e .
	@touch $@

# A source distribution has no links.
src/wattsched/__init__.py:
	mkdir -p src/wattsched
	cd src/wattsched && ln -s ../../engine/* $(addprefix ../../,$(filter-out engine,$(PACKAGES))) .

$(VENV)/bench: $(BIN)/python pyproject.toml constraints.txt
	@echo "installing the peers for benchmarks into $(VENV)"
	@$(PIP) install -c constraints.txt -e '.[bench]'
	@touch $@

$(VENV)/tools: $(BIN)/python pyproject.toml constraints.txt
	@echo "installing the tools for development into $(VENV)"
	@$(PIP) install -c constraints.txt -e '.[dev]'
	@touch $@
