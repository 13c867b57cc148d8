# contextpool: `make demo` and `make test` are all a newcomer needs. Each makes what it depends on.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
WORKERS ?= 2

.DEFAULT_GOAL := help
.PHONY: help demo test check format bench bench-large soak clean

help:  ## this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | awk -F':.*## ' '{printf "  make %-12s %s\n", $$1, $$2}'

$(STAMP): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "contextpool needs Python 3.11 or newer; $(PYTHON) is $$($(PYTHON) -V 2>&1). Try: make $(MAKECMDGOALS) PYTHON=python3.12"; exit 1; }
	@test -x $(BIN)/python || { echo "==> making a virtual environment in $(VENV)"; $(PYTHON) -m venv $(VENV); }
	@echo "==> installing contextpool and its development tools into $(VENV) (the first time takes some minutes)"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	@touch $@

demo: $(STAMP)  ## the whole story on the embedded graph
	@echo "==> contextpool demo"
	@$(BIN)/contextpool demo

test: $(STAMP)  ## the test suite
	@echo "==> running the tests on $(WORKERS) workers"
	@OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n $(WORKERS) -m "not soak"

check: $(STAMP)  ## format, lint, types, import order
	@echo "==> format"; $(BIN)/ruff format --check .
	@echo "==> lint"; $(BIN)/ruff check .
	@echo "==> types"; $(BIN)/mypy
	@echo "==> layers"; $(BIN)/lint-imports --no-cache

format: $(STAMP)  ## rewrite the sources as `make check` wants them
	@$(BIN)/ruff format . && $(BIN)/ruff check --fix .

bench: $(STAMP)  ## benchmarks, printed as ratios within one run
	@for script in benchmarks/*.py; do echo "==> $$script"; $(BIN)/python $$script || exit 1; done

bench-large: $(STAMP)  ## 10^8 triples mined on disk; needs 3 GB of disk, TEMP=folder says where
	@$(BIN)/python benchmarks/mining.py --triples 100000000 --entities 10000000 --engines disk $(if $(TEMP),--temp $(TEMP))

# Spark is tested and measured where it is: Java 17 or newer, and $(BIN)/pip install -c constraints.txt -e '.[spark]'
soak: $(STAMP)  ## the long amounts of the tests
	@echo "==> running the long tests"
	@OMP_NUM_THREADS=1 CONTEXTPOOL_SOAK=1 $(BIN)/python -m pytest -n $(WORKERS)

clean:  ## remove the virtual environment and all caches
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis dist build
	find src tests -name __pycache__ -type d -exec rm -rf {} +
