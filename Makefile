# The newcomer's commands: `make run` and `make test`. Each sets up what it needs in .venv.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# One stamp per set of dependencies, so that running the broker never installs the test tools.
SERVER_READY := $(VENV)/.server-ready
DEV_READY := $(VENV)/.dev-ready
BENCH_READY := $(VENV)/.bench-ready

.PHONY: run test check bench demo fmt sim fuzz clean

run: $(SERVER_READY)
	$(BIN)/penstock serve

test: $(DEV_READY)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache
	$(BIN)/pytest -n 2 --dist loadgroup

check: $(DEV_READY)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache
	$(BIN)/pytest -q -n 2 -m "not slow and not spark" tests/unit tests/golden tests/test_tidy.py

bench: $(BENCH_READY)
	$(BIN)/python -m benchmarks $(ARGS)

demo: $(SERVER_READY)
	$(BIN)/python examples/demo.py

sim: $(DEV_READY)
	$(BIN)/python -m sim $(ARGS)

fuzz: $(DEV_READY)
	$(BIN)/python -m fuzz $(ARGS)

fmt: $(DEV_READY)
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade "pip>=25.1"

$(SERVER_READY): $(VENV)/bin/python pyproject.toml
	$(BIN)/python -m pip install --quiet --editable ".[server]"
	touch $@

$(DEV_READY): $(SERVER_READY)
	$(BIN)/python -m pip install --quiet --editable ".[server,spark]" --group dev
	touch $@

$(BENCH_READY): $(SERVER_READY)
	$(BIN)/python -m pip install --quiet --editable ".[server,spark]" --group bench
	touch $@

clean:
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis
