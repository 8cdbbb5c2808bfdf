# The newcomer's commands: `make run` and `make test`. Each sets up what it needs in .venv.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# One stamp per set of dependencies, so that running the broker never installs the test tools. uv takes half the time
# that pip takes, but knows nothing of pip's settings: where it cannot install, pip can. What is installed is not
# compiled ahead: most of it is never imported, and what is keeps its bytecode from then on.
INSTALL = $(BIN)/uv pip install --quiet --python $(BIN)/python $(SET) \
	|| $(BIN)/python -m pip install --no-compile $(SET)
SERVER_READY := $(VENV)/.server-ready
DEV_READY := $(VENV)/.dev-ready
BENCH_READY := $(VENV)/.bench-ready
DEMO_READY := $(VENV)/.demo-ready

.PHONY: run test check lint bench demo fmt sim fuzz torture proto screenshots clean

run: $(SERVER_READY)
	$(BIN)/penstock serve

# The linters need one core for a quarter of a minute, and the tests need not wait for them: what they say comes last.
# Three workers on two cores: they also wait, for disks, processes and deadlines.
test: $(DEV_READY)
	@$(MAKE) --no-print-directory lint >$(VENV)/lint.log 2>&1 & linters=$$!; \
	$(BIN)/pytest -n 3; tests=$$?; \
	wait $$linters; lint=$$?; cat $(VENV)/lint.log; exit $$((tests | lint))

check: lint
	HYPOTHESIS_PROFILE=quick $(BIN)/pytest -q -n 2 -m "not slow and not spark" tests/unit tests/golden tests/test_tidy.py

lint: $(DEV_READY)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache
	$(BIN)/bandit --quiet --recursive src --severity-level medium

bench: $(BENCH_READY)
	$(BIN)/python -m benchmarks $(ARGS)

demo: $(DEMO_READY)
	$(BIN)/python examples/demo.py $(ARGS)

sim: $(DEV_READY)
	$(BIN)/python -m sim $(ARGS)

fuzz: $(DEV_READY)
	$(BIN)/python -m fuzz $(ARGS)

# Hours: the real broker on a real disk, killed, cut off, stopped and refused. As root, for power cuts and full disks.
torture: $(DEV_READY)
	$(BIN)/python -m torture $(ARGS)

# The generated code runs on the protobuf of its generator and the next major version, so the generator is an old one,
# in a place of its own.
proto:
	$(PYTHON) -m venv $(VENV)-proto
	$(VENV)-proto/bin/python -m pip install --quiet grpcio-tools==1.76.0
	$(VENV)-proto/bin/python -m grpc_tools.protoc -Isrc --python_out=src --pyi_out=src --grpc_python_out=src \
		src/penstock/v1/broker.proto

# The pictures of the documentation. Needs a Chromium.
screenshots: $(DEV_READY)
	$(BIN)/python tests/acceptance/screenshots.py

fmt: $(DEV_READY)
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade "pip>=25.1"
	$(BIN)/python -m pip install --quiet --only-binary uv uv || echo "there is no uv for this machine: pip installs"

$(SERVER_READY): SET = --editable ".[server]"
$(SERVER_READY): $(VENV)/bin/python pyproject.toml
	$(INSTALL)
	touch $@

# The larger sets contain the server's set: each of them installs once, not twice.
$(DEV_READY): SET = --editable ".[server,spark]" --group dev
$(DEV_READY): $(VENV)/bin/python pyproject.toml
	$(INSTALL)
	touch $(SERVER_READY) $@

$(BENCH_READY): SET = --editable ".[server,spark]" --group bench
$(BENCH_READY): $(VENV)/bin/python pyproject.toml
	$(INSTALL)
	touch $(SERVER_READY) $@

$(DEMO_READY): SET = --editable ".[server,spark]"
$(DEMO_READY): $(VENV)/bin/python pyproject.toml
	$(INSTALL)
	touch $(SERVER_READY) $@

clean:
	rm -rf $(VENV) $(VENV)-proto .pytest_cache .mypy_cache .ruff_cache .hypothesis
