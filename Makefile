# make demo | test | test-heavy | test-hosts | lint | spec | bench | clean
#
# PYTHON=… chooses the interpreter (3.11 or newer; the first one found on PATH by default), VENV=… the environment.

VENV ?= .venv
CANDIDATES := python3.11 python3.12 python3.13 python3.14 python3 python
CHECK := import sys, venv; sys.exit(sys.version_info < (3, 11))
PYTHON ?= $(shell for p in $(CANDIDATES); do $$p -c '$(CHECK)' 2>/dev/null && echo $$p && break; done)
RUN := $(VENV)/bin/python
PIP := $(RUN) -m pip install --quiet --disable-pip-version-check --no-input
# What other versions of Python are tested with: no packages of cloud stores, which take minutes to install.
CORE_PACKAGES := pytest pytest-timeout hypothesis PyYAML jsonschema msgpack
CORE_TESTS := tests/format tests/write tests/archive tests/audit tests/replay tests/integrations tests/cli $(wildcard tests/test_*.py)
PYTEST := $(RUN) -m pytest -q
# What gates a change tries the same examples each time; a bare pytest, and the heavy tests, others every time.
REPEATABLE := --hypothesis-profile=repeatable
# A process for each core, each with its own servers and directories, and a file of tests never in two of them.
PARALLEL := -n auto --dist loadfile
# Releases of Chassis that the integration is tested with; they need Python 3.12.
CHASSIS := 0.9.1 1.0.0b2
HOST_CHECK := import sys, venv; sys.exit(sys.version_info < (3, 12))
HOST_PYTHON ?= $(shell for p in python3.12 python3.13 python3; do $$p -c '$(HOST_CHECK)' 2>/dev/null && echo $$p && break; done)

.PHONY: demo test test-core test-heavy test-hosts lint spec bench clean

$(RUN):
	@test -n "$(PYTHON)" || { echo "no Python 3.11 or newer on PATH: set PYTHON=/path/to/python3" >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)

# One stamp for each set of packages; all of them depend on what the package itself asks for.
$(VENV)/.installed-cli: pyproject.toml | $(RUN)
	$(PIP) -e '.[cli]'
	@touch $@

$(VENV)/.installed-core: pyproject.toml | $(RUN)
	$(PIP) -e '.[cli,http]' $(CORE_PACKAGES)
	@touch $@

$(VENV)/.installed-test: pyproject.toml | $(RUN)
	$(PIP) -e '.[test]'
	@touch $@

$(VENV)/.installed-heavy: pyproject.toml | $(RUN)
	$(PIP) -e '.[test,heavy]'
	@touch $@

$(VENV)/.installed-lint: $(VENV)/.installed-test
	$(PIP) -e '.[lint]'
	@touch $@

$(VENV)/.installed-bench: pyproject.toml | $(RUN)
	$(PIP) -e '.[cli,fast,bench]'
	@touch $@

demo: $(VENV)/.installed-cli
	@rm -rf demo-archive
	@echo; echo "== An agent runs with its model and its tools, and is recorded"
	@$(RUN) examples/agent.py record demo-archive
	@echo; echo "== The same agent runs again, answered from the archive alone"
	@$(RUN) examples/agent.py replay demo-archive
	@echo; echo "== replaypack ls demo-archive"
	@$(VENV)/bin/replaypack ls demo-archive
	@echo; echo "== replaypack show 'demo-archive#agents/expenses'"
	@$(VENV)/bin/replaypack show 'demo-archive#agents/expenses'
	@echo; echo "== replaypack show 'demo-archive#agents/expenses' --kind tool"
	@$(VENV)/bin/replaypack show 'demo-archive#agents/expenses' --kind tool
	@echo; echo "== replaypack verify demo-archive"
	@$(VENV)/bin/replaypack verify demo-archive

test: $(VENV)/.installed-test
	$(PYTEST) $(REPEATABLE) $(PARALLEL) -m "not heavy"

test-core: $(VENV)/.installed-core
	$(PYTEST) $(REPEATABLE) -m "not heavy and not once" $(wildcard $(CORE_TESTS))

test-heavy: $(VENV)/.installed-heavy
	$(PYTEST) -m heavy

# Host programs, each release in an environment of its own with the sources that its tests are in.
test-hosts: $(CHASSIS:%=test-chassis-%)

.PRECIOUS: .venv-chassis-%/.installed

.venv-chassis-%/.installed: pyproject.toml
	@test -n "$(HOST_PYTHON)" || { echo "no Python 3.12 or newer on PATH: set HOST_PYTHON=…" >&2; exit 1; }
	$(HOST_PYTHON) -m venv $(@D)
	$(@D)/bin/python -m pip install --quiet --disable-pip-version-check --no-input -e . \
		'chassis-harness[langgraph]==$*' pytest pytest-timeout pytest-asyncio hypothesis
	$(@D)/bin/python -m pip download --quiet --disable-pip-version-check --no-input --no-deps \
		--no-binary chassis-harness --dest $(@D)/source chassis-harness==$*
	tar -xzf $(@D)/source/chassis_harness-$*.tar.gz -C $(@D)/source
	@touch $@

test-chassis-%: .venv-chassis-%/.installed
	REPLAYPACK_CHASSIS_SOURCE=.venv-chassis-$*/source/chassis_harness-$* \
		.venv-chassis-$*/bin/python -m pytest -q -p no:asyncio tests/integrations/test_chassis*.py

lint: $(VENV)/.installed-lint
	$(RUN) -m ruff check .
	$(RUN) -m ruff format --check .
	$(RUN) -m mypy

# The examples of the specification, its vectors, and a reader of them that is not this package.
spec: $(VENV)/.installed-test
	$(PYTEST) $(wildcard tests/test_vectors*.py tests/test_spec_examples.py)
	$(if $(wildcard spec/conformance/read_vectors.py),$(RUN) spec/conformance/read_vectors.py)

bench: $(VENV)/.installed-bench
	$(RUN) -m benchmarks

clean:
	rm -rf $(VENV) .venv-3.* .venv-chassis-* demo-archive build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
