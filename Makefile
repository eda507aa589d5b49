# Everything a fresh machine needs: `make demo` and `make test` create the environment by themselves.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
NATIVE := $(shell find csrc -type f) CMakeLists.txt

.PHONY: demo test lint install clean

demo: install
	$(BIN)/blackout demo

test: install
	$(BIN)/python -m pytest

lint: install
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

install: $(STAMP)

$(STAMP): pyproject.toml constraints.txt $(NATIVE)
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet -c constraints.txt scikit-build-core nanobind
	$(BIN)/python -m pip install --quiet -c constraints.txt --no-build-isolation -e ".[dev]"
	touch $(STAMP)

clean:
	rm -rf $(VENV) build dist .mypy_cache .pytest_cache .ruff_cache
