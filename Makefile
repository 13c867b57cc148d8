# contextpool: `make demo` and `make test` are all a newcomer needs. Each makes what it depends on.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
WORKERS ?= 2

.DEFAULT_GOAL := help
.PHONY: help demo test browser check format bench bench-large soak docs dist wheel-test lowest clean

help:  ## this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | awk -F':.*## ' '{printf "  make %-12s %s\n", $$1, $$2}'

$(STAMP): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "contextpool needs Python 3.11 or newer; $(PYTHON) is $$($(PYTHON) -V 2>&1). Try: make $(MAKECMDGOALS) PYTHON=python3.12"; exit 1; }
	@test -x $(BIN)/python || { echo "==> making a virtual environment in $(VENV)"; $(PYTHON) -m venv $(VENV); }
	@echo "==> installing contextpool and its development tools into $(VENV) (the first time takes some minutes)"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps brickschema==0.8.0  # its RDF is read in a test
	@touch $@

demo: $(STAMP)  ## the whole story on the embedded graph
	@echo "==> contextpool demo"
	@$(BIN)/contextpool demo

test: $(STAMP) browser  ## the test suite
	@echo "==> running the tests on $(WORKERS) workers"
	@OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n $(WORKERS) --dist worksteal -m "not soak"

browser:  ## Chromium for the test of the page, where it is missing and can be installed
	@for one in chromium chromium-browser google-chrome; do command -v $$one >/dev/null && exit 0; done; \
	  command -v apt-get >/dev/null || { echo "==> no Chromium here; the test of the page will be skipped"; exit 0; }; \
	  echo "==> installing Chromium for the test of the page"; \
	  root=; test "$$(id -u)" = 0 || root="sudo -n"; \
	  { $$root apt-get install -y --no-install-recommends chromium || \
	    { $$root apt-get update && $$root apt-get install -y --no-install-recommends chromium; }; } >/dev/null 2>&1 || \
	  echo "    that is not possible here; the test will be skipped"

check: $(STAMP)  ## format, lint, types, import order
	@echo "==> format"; $(BIN)/ruff format --check .
	@echo "==> lint"; $(BIN)/ruff check .
	@echo "==> types"; $(BIN)/mypy
	@echo "==> layers"; $(BIN)/lint-imports --no-cache

format: $(STAMP)  ## rewrite the sources as `make check` wants them
	@$(BIN)/ruff format . && $(BIN)/ruff check --fix .

bench: $(STAMP)  ## benchmarks, printed as ratios within one run
	@for script in $(filter-out %/plot_scaling.py %/laptop.py,$(wildcard benchmarks/*.py)); do echo "==> $$script"; $(BIN)/python $$script || exit 1; done

bench-large: $(STAMP)  ## 10^8 triples mined on disk; needs 3 GB of disk, TEMP=folder says where
	@$(BIN)/python benchmarks/mining.py --triples 100000000 --entities 10000000 --engines disk $(if $(TEMP),--temp $(TEMP))

# Spark is tested and measured where it is: Java 17 or newer, and $(BIN)/pip install -c constraints.txt -e '.[spark]'
soak: $(STAMP) browser  ## the long amounts of the tests
	@echo "==> running the long tests"
	@OMP_NUM_THREADS=1 CONTEXTPOOL_SOAK=1 $(BIN)/python -m pytest -n $(WORKERS) --dist worksteal

docs: $(STAMP)  ## the documentation as a site, in site/; a warning is an error
	@echo "==> building site/"
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

dist: $(STAMP)  ## sdist and wheel, in dist/
	@rm -rf dist
	@$(BIN)/python -m hatchling build --directory dist

wheel-test: dist  ## the wheel in an empty environment, outside the repository
	@echo "==> installing the wheel into an empty environment, then its demo"
	@$(BIN)/python scripts/wheel_test.py dist/*.whl --constraints constraints.txt

lowest: $(STAMP)  ## the fast tests with the lowest versions that are allowed, in an environment of their own
	@$(BIN)/python scripts/lowest.py $(if $(FOLDER),--folder $(FOLDER)) $(TESTS)

clean:  ## remove the virtual environment and all caches
	rm -rf $(VENV) .screenshots .pytest_cache .mypy_cache .ruff_cache .hypothesis dist build site
	find src lab tests -name __pycache__ -type d -exec rm -rf {} +
