# Two commands for a fresh machine: `make demo` and `make test`. Everything lives in .venv.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
FUZZ_SECONDS ?= 600
# kept whatever the environment says: the tests start a hundred interpreters, and pytest rewrites its asserts once
export PYTHONDONTWRITEBYTECODE :=
INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt
PYTEST := $(BIN)/python -m pytest -n auto --dist worksteal

.PHONY: demo test test-full docs docs-serve fuzz lint format clean

demo: $(VENV)/.core
	$(BIN)/python -m darrm.optimize
	@echo 'To go on in this shell: . $(BIN)/activate'

test: $(VENV)/.dev lint
	$(PYTEST) -m "not slow"

# everything, with ten times as many random examples; what CI runs
test-full: $(VENV)/.dev lint
	$(PYTEST) --hypothesis-profile=full

# the site, in build/docs/index.html: warnings are errors; tutorials are run, again only where the code has changed
docs: $(VENV)/.dev build/node_modules
	$(BIN)/python -m sphinx -W --keep-going --quiet -j auto -d build/doctrees docs build/docs

# with excerpts in the search, which a page that is opened as a file cannot show
docs-serve: docs
	$(BIN)/python -m http.server --bind 127.0.0.1 --directory build/docs 8000

# the explorer's solver, HiGHS in WebAssembly; a site without it shows what needs no linear program
build/node_modules: docs/package-lock.json
	mkdir -p build
	cp docs/package.json docs/package-lock.json build
	if npm ci --prefix build --silent; then touch $@; else echo 'no npm or no network: the explorer has no solver'; fi

# bad input for every command, as long as wanted: make fuzz FUZZ_SECONDS=3600
fuzz: $(VENV)/.dev
	$(BIN)/python -m tests.fuzz --seconds $(FUZZ_SECONDS)

lint: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(VENV)/.dev
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

$(VENV)/.core: pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(INSTALL) -e .
	touch $@

$(VENV)/.dev: pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(INSTALL) -e '.[dev]'
	touch $@ $(VENV)/.core

clean:
	rm -rf $(VENV) build docs/gallery *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
