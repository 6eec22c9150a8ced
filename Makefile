# Two commands do everything on a machine with Python 3.11+, git and make:
#   make demo   watch one item go through the red-green ratchet
#   make test   install what the tests need and run them
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
PIP    := $(BIN)/python -m pip --disable-pip-version-check --quiet
STAMP  := $(VENV)/.installed
NEEDS  := pyproject.toml constraints.txt

.PHONY: env demo test test-everywhere lint types format check bench docs clean mutants
.PHONY: dist check-wheel accuracy toolchains test-toolchains agents test-agents test-described test-slow
.PHONY: certify-factory certify-figures certify-workflows certify-watch certify-escape test-machines soak

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
	@scripts/engines podman redis kubernetes
	@scripts/agents goose
	$(BIN)/python -m pytest -n 3 -m 'not toolchain and not agents and not certify and not engines'
	scripts/test-everywhere --covered-by $(BIN)/python

# All of it as root and as an ordinary user, with the system's Python, the newest one that is installed, and that of
# Debian's next release.
test-everywhere: env
	@scripts/system-packages
	scripts/test-everywhere --all

# The real toolchains of other languages, where apt, npm and pip can be reached.
toolchains:
	scripts/toolchains

test-toolchains: env
	$(BIN)/python -m pytest tests/checks tests/app/watch tests/interfaces/mcp -m toolchain

# The real coding agents, at the versions their adapters were tested with, against a scripted model.
agents:
	scripts/agents

test-agents: env agents
	$(BIN)/python -m pytest -n 4 tests/agents tests/interfaces/mcp/test_agent.py

# What runs on engines of others: containers, Ray clusters, nginx, and what scripts/engines installs besides. Some minutes.
.PHONY: engines test-engines
engines: env
	scripts/engines

test-engines: engines
	$(BIN)/python -m pytest tests -m engines
	$(BIN)/python -m pytest tests/test_kubernetes.py

# The HTTP interface against its own description, by many more generated requests than in every run of the tests.
test-described: env
	RATCHET_EXAMPLES=25 $(BIN)/python -m pytest tests/interfaces/http/test_schema.py -n 2

# How much of each recorded output is read right: identities, statuses, places of failures, expected and actual values.
accuracy: env
	@$(BIN)/python -m pytest -q --no-header tests/checks/formats/test_truth.py tests/checks/formats/test_golden.py

# How many cheats are found and how many honest changes refused, by language and class: the regression suite, and what
# FRESH (a folder of changes nobody tuned to) and PUBLIC (a folder of bare git repositories) hold.
.PHONY: trust
trust: env
	@$(BIN)/python -m tests.core.cheats.trust $(if $(FRESH),--fresh $(FRESH)) $(if $(PUBLIC),--public $(PUBLIC))

# What takes minutes: logs of a gigabyte.
test-slow: env
	RATCHET_SLOW=1 $(BIN)/python -m pytest tests/checks/formats/test_streaming.py

# The factory under full load: 200 items, 8 workers, killed all the time, on SQLite and on PostgreSQL. Many minutes.
certify-factory: env
	$(BIN)/python -m pytest tests/app -m certify

# The figures of ten thousand random runs against a recount of their ledgers: some minutes.
certify-figures: env
	$(BIN)/python -m pytest tests/contract/test_figures.py -m certify -k sqlite

# The power is cut at every durable write of every workflow, and every mess is made in every kind of workspace: twenty minutes.
certify-workflows: env
	$(BIN)/python -m pytest -n 2 tests/crash tests/engine/test_hostile_agents.py -m 'certify or slow' -k 'not in_a_sample'

# Every attempt to escape, from every place and in every kind of workspace: ten minutes.
certify-escape: env
	$(BIN)/python -m pytest -n 2 tests/escape

# A factory that is disturbed all the time: workers killed, stopped and woken, restarted. `make soak MINUTES=5 STORE=postgres`.
soak: env
	$(BIN)/python -m tests.app.soak --minutes $(or $(MINUTES),30) --store $(or $(STORE),sqlite)

# Every command on every machine of the table in docs/platforms.md: a few minutes.
test-machines: env
	$(BIN)/python -m pytest -n 2 tests/machines

# Two hundred random edits of a real project: the watch must say what cold runs say. Takes a quarter of an hour on a
# quiet machine; `python -m tests.app.watch.certify --file TALLY` goes on where it was cut.
certify-watch: env
	$(BIN)/python -m tests.app.watch.certify

# How many small wrong changes to `core` the tests of `core` notice: a sample of 400, by mutmut; about ten minutes.
# `scripts/mutants 100 compare flaky` takes 100 in two modules. On a quiet machine: timeouts count as noticed.
mutants: env
	$(PIP) install --constraint constraints.txt mutmut
	$(BIN)/python scripts/mutants

lint: env
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .

types: env
	$(BIN)/mypy

format: env
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

docs: env
	$(BIN)/python -m ratchet.interfaces.docs

check: lint types test check-wheel

# Wheel and source distribution in dist/.
dist: env
	@rm -rf dist
	$(PIP) install --constraint constraints.txt build hatchling
	$(BIN)/python -m build --no-isolation --outdir dist .

# The wheel in a clean environment: the demo, `test` and `doctor` from it, in less than 90 seconds.
check-wheel: dist
	scripts/check-wheel dist

bench: env
	$(BIN)/python -m bench

clean:
	rm -rf $(VENV) mutants .mypy_cache .ruff_cache .pytest_cache .hypothesis
