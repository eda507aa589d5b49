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

.PHONY: demo test test-wheel test-page test-gpu soak sweep lint docs sanitize fuzz install clean

demo: $(CORE)
	$(BIN)/blackout demo

# A file of tests is one worker's, so that what its tests share is made once.
WORKERS ?= $(shell getconf _NPROCESSORS_ONLN)
test: install
	$(BIN)/python -m pytest -n $(WORKERS) --dist loadfile

# Properties over settings drawn at random, new ones each round; `make test` tries a few of them.
soak: install
	$(BIN)/python tests/soak/run.py --minutes $(if $(filter command environment,$(origin MINUTES)),$(MINUTES),60)

# Every operation of the system fails once, and every large piece of memory; `make test` tries some.
sweep: install
	$(BIN)/python -m tests.faults.sweep

# The wheel in an environment with nothing else in it; what is compiled already is not compiled again.
WHEEL := build/wheel
test-wheel: install
	rm -rf $(WHEEL) && $(BIN)/python -m pip wheel --quiet --no-deps --no-build-isolation -w $(WHEEL) .
	$(PYTHON) -m venv $(WHEEL)/env
	$(WHEEL)/env/bin/python -m pip install --quiet -c constraints.txt $(WHEEL)/*.whl
	cd $(WHEEL) && env/bin/blackout demo --quick

# The page of `blackout serve` in the system's Chromium (CHROMIUM=…, else the one on the path).
test-page: install
	$(BIN)/python -m pip install --quiet -c constraints.txt playwright
	$(BIN)/python -m pytest tests/serve/in_a_browser.py

# On a machine with a GPU, with the Python that has its PyTorch and Triton; nothing is fetched. What
# that Python lacks (nanobind to build, pytest to test) may lie in a folder VENDOR: CONTRIBUTING.md.
GPU_PYTHON ?= python3
VENDOR ?=
SITE := $(abspath build/gpu/site)
test-gpu:
	mkdir -p $(SITE) && cp -r src/blackout $(SITE)/
	PYTHONPATH=$(VENDOR) cmake -S . -B build/gpu -DCMAKE_BUILD_TYPE=Release \
	  -DPython_EXECUTABLE=$$(command -v $(GPU_PYTHON))
	cmake --build build/gpu -j && cp build/gpu/_native*.so $(SITE)/blackout/
	PYTEST_DISABLE_PLUGIN_AUTOLOAD=1 PYTHONPATH=$(SITE):$(VENDOR) $(GPU_PYTHON) -m pytest \
	  tests/gpu tests/ops -k "on_a_gpu or triton or graph_step" --durations=5

lint: install
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

docs: install
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet

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

# Goes on looking for files that a parser does not survive (tests/fuzz). Native parsers need clang.
MINUTES ?= 1
fuzz: install
	$(BIN)/python -m pip install --quiet -c constraints.txt atheris
	PYTHON=$(abspath $(BIN)/python) MINUTES=$(MINUTES) tests/fuzz/run

install: $(INSTALLED)

$(CORE): pyproject.toml constraints.txt $(NATIVE)
	$(call INSTALL,.)
	touch $(CORE)

$(INSTALLED): pyproject.toml constraints.txt $(NATIVE)
	$(call INSTALL,".[dev]")
	touch $(CORE) $(INSTALLED)

clean:
	rm -rf $(VENV) build dist .mypy_cache .pytest_cache .ruff_cache
