SHELL := bash
# Every target sets itself up; PYTHON may name another 3.11+ interpreter.
PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
LOCK := .ci/dev.lock
BUILT := .venv/built
export PYTHONDONTWRITEBYTECODE =  # many tests start processes, which read bytecode faster than source
TAG = $(shell $(BIN)/python -c "import sys; print('cp%d%d' % sys.version_info[:2])")
BUILD = rm -rf $(BUILT) && $(BIN)/python -W ignore -c "import setuptools; setuptools.setup()" --quiet build_py \
	--build-lib $(BUILT)

COMPILE = $(BIN)/uv pip compile --quiet --no-config --universal --python-version 3.11 --generate-hashes --no-annotate \
	--custom-compile-command 'make lock' pyproject.toml

.PHONY: env demo test lint lock newest docs wheel bench results trust fuzz faults clean

env: $(STAMP)

# Every file that is installed has a hash in the lock. Of the packages only a part is ever imported; Python compiles that
# when it is.
$(STAMP): pyproject.toml $(LOCK)
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile --require-hashes --requirement $(LOCK)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile --no-deps --no-build-isolation --editable .
	$(BIN)/provision warm-up
	touch $(STAMP)

# The main job on a shipped instance: compare, prove, draw, write, verify.
demo: env
	$(BIN)/provision compare parvagpu-s5 --methods parvagpu,master
	$(BIN)/provision solve parvagpu-s5 --out demo/plan.json --force
	$(BIN)/provision verify parvagpu-s5 demo/plan.json
	$(BIN)/provision show demo/plan.json --png demo/plan.png --html demo/plan.html --force > /dev/null

test: env lint
	$(BIN)/python -m pytest

# Types are checked in the package as it is built: mypy does not follow the links of an editable installation.
lint: env
	$(BIN)/ruff check .
	$(BUILD)
	$(BIN)/mypy

# The versions that `make env` and the container file install, for every Python from 3.11; those that are locked already
# stay where the ranges of pyproject.toml allow it.
lock: env
	$(COMPILE) --extra dev --output-file .ci/dev.lock
	$(COMPILE) --extra image --constraint .ci/dev.lock --output-file .ci/image.lock

# Tell what moved beside the lock, and test with the newest versions that the ranges allow, in an environment of its own.
newest: env
	mkdir -p newest
	$(COMPILE) --extra dev --upgrade --output-file newest/dev.lock
	@diff <(grep -o '^[^ ]*==[^\\]*' .ci/dev.lock) <(grep -o '^[^ ]*==[^\\]*' newest/dev.lock) && echo 'nothing moved' || true
	$(MAKE) test VENV=newest/venv LOCK=newest/dev.lock

# The site, its Python names from the package as it is built; a broken link fails.
docs: env
	$(BUILD)
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

# A wheel with its kernels compiled: for Linux, x86-64 processors with AVX2, this version of Python and of Numba.
wheel: env
	rm -rf dist
	$(BIN)/python -m pip wheel --quiet --disable-pip-version-check --no-deps --wheel-dir dist .
	$(BIN)/wheel unpack --dest dist dist/*.whl
	cd dist/gpu_provision-*/ && PYTHONPATH=. ../../$(BIN)/python -m provision warm-up --portable
	find dist -name '*.pyc' -delete
	$(BIN)/wheel pack --dest dist dist/gpu_provision-*/
	$(BIN)/wheel tags --remove --python-tag $(TAG) --abi-tag $(TAG) --platform-tag linux_x86_64 dist/*.whl
	rm -r dist/gpu_provision-*/

bench: env
	$(BIN)/python benchmarks/isolated.py

# Whether the documents' tables still hold: the result files that take under ten minutes are made anew and compared.
results: env
	$(BIN)/python benchmarks/moved.py
	$(BIN)/python benchmarks/papers/pages.py --check

# The dated table of docs/trust.md: every result file behind it is made anew (an hour; ../shared/data), then the pages.
trust: env
	$(BIN)/python benchmarks/papers/pages.py --anew trust-dated

fuzz: env
	$(BIN)/python benchmarks/fuzz.py

# Every driver and MPS call of an apply goes wrong in turn; appliers at once in random order; a day of random applies.
faults: env
	$(BIN)/python benchmarks/faults.py
	$(BIN)/python benchmarks/applier/interleavings.py
	$(BIN)/python benchmarks/applier/day.py

clean:
	rm -rf .venv demo dist newest site
