# Everything a fresh machine needs: `make demo` and `make test` create the environment by themselves.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# The demo needs the package alone; a first result does not wait for what the tests need on top.
CORE := $(VENV)/.core
INSTALLED := $(VENV)/.installed
NATIVE := $(shell find csrc -type f) CMakeLists.txt

# The native code under the sanitizers: a build of its own for each, drivers without PyTorch.
COMMA := ,
ASAN := build/sanitize-address
TSAN := build/sanitize-thread
CONFIGURE = cmake -S . -DCMAKE_BUILD_TYPE=RelWithDebInfo \
  -DPython_EXECUTABLE=$(abspath $(BIN)/python) -DBLACKOUT_SANITIZE=$(1) -B $(2) && cmake --build $(2)

define INSTALL
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet -c constraints.txt scikit-build-core nanobind
	$(BIN)/python -m pip install --quiet -c constraints.txt --no-build-isolation -e $(1)
endef

.PHONY: demo test lint sanitize install clean

demo: $(CORE)
	$(BIN)/blackout demo

test: install
	$(BIN)/python -m pytest

lint: install
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

sanitize: install
	$(call CONFIGURE,address$(COMMA)undefined,$(ASAN))
	$(call CONFIGURE,thread,$(TSAN))
	for isa in $$($(BIN)/python tests/sanitize/kernels.py --list); do \
	  echo "address, undefined behaviour: $$isa" && BLACKOUT_ISA=$$isa ASAN_OPTIONS=detect_leaks=0 \
	  LD_PRELOAD=$$($(CXX) -print-file-name=libasan.so) \
	  $(BIN)/python tests/sanitize/kernels.py $(ASAN)/_native*.so && \
	  echo "threads: $$isa" && BLACKOUT_ISA=$$isa TSAN_OPTIONS=exitcode=66 \
	  LD_PRELOAD=$$($(CXX) -print-file-name=libtsan.so) \
	  $(BIN)/python tests/sanitize/kernels.py $(TSAN)/_native*.so || exit 1; \
	done
	ASAN_OPTIONS=detect_leaks=0 LD_PRELOAD="$$($(CXX) -print-file-name=libasan.so) \
	  $$($(CXX) -print-file-name=libstdc++.so)" $(BIN)/python tests/sanitize/ngrams.py $(ASAN)/_native*.so

install: $(INSTALLED)

$(CORE): pyproject.toml constraints.txt $(NATIVE)
	$(call INSTALL,.)
	touch $(CORE)

$(INSTALLED): pyproject.toml constraints.txt $(NATIVE)
	$(call INSTALL,".[dev]")
	touch $(CORE) $(INSTALLED)

clean:
	rm -rf $(VENV) build dist .mypy_cache .pytest_cache .ruff_cache
