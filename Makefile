# Two commands do everything on a machine with Python 3.11+, git and make:
#   make demo   watch one item go through the red-green ratchet
#   make test   install what the tests need and run them
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
PIP    := $(BIN)/python -m pip --disable-pip-version-check --quiet
STAMP  := $(VENV)/.installed
NEEDS  := pyproject.toml constraints.txt

.PHONY: env demo test lint types format check bench docs clean
.PHONY: accuracy toolchains test-toolchains agents test-agents test-described test-slow
.PHONY: certify-factory certify-workflows certify-watch

env: $(STAMP)

$(STAMP): $(NEEDS)
	$(PYTHON) -m venv $(VENV)
	$(PIP) install --constraint constraints.txt --editable '.[dev]'
	@$(BIN)/python -m compileall -q src # a start takes three times as long where Python may not write these itself
	@touch $@

demo: env
	@$(BIN)/ratchet demo

test: env
	@scripts/system-packages
	@scripts/agents goose
	$(BIN)/python -m pytest -n 2 -m 'not toolchain and not agents and not certify'

# The real toolchains of other languages, where apt, npm and pip can be reached.
toolchains:
	scripts/toolchains

test-toolchains: env
	$(BIN)/python -m pytest tests/checks tests/watch tests/mcp -m toolchain

# The real coding agents, at the versions their adapters were tested with, against a scripted model.
agents:
	scripts/agents

test-agents: env agents
	$(BIN)/python -m pytest -n 4 tests/agents tests/mcp/test_agent.py

# The HTTP interface against its own description, by many more generated requests than in every run of the tests.
test-described: env
	RATCHET_EXAMPLES=25 $(BIN)/python -m pytest tests/http/test_schema.py -n 2

# How much of each recorded output is read right: identities, statuses, places of failures, expected and actual values.
accuracy: env
	@$(BIN)/python -m pytest -q --no-header tests/formats/test_truth.py tests/formats/test_golden.py

# What takes minutes: logs of a gigabyte.
test-slow: env
	RATCHET_SLOW=1 $(BIN)/python -m pytest tests/formats/test_streaming.py

# The factory under full load: 200 items, 8 workers, killed all the time, on SQLite and on PostgreSQL. Many minutes.
certify-factory: env
	$(BIN)/python -m pytest tests/factory -m certify

# The power is cut at every durable write of every workflow, and every mess is made in every kind of workspace: twenty minutes.
certify-workflows: env
	$(BIN)/python -m pytest -n 2 tests/crash tests/test_hostile.py -m 'certify or slow' -k 'not in_a_sample'

# Two hundred random edits of a real project: the watch must say what cold runs say. Takes a quarter of an hour on a
# quiet machine; `python -m tests.watch.certify --file TALLY` goes on where it was cut.
certify-watch: env
	$(BIN)/python -m tests.watch.certify

lint: env
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .

types: env
	$(BIN)/mypy

format: env
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

docs: env
	$(BIN)/python -m ratchet.surfaces.docs

check: lint types test

bench: env
	$(BIN)/python -m bench

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis
