# Everything sets itself up: a virtual environment in .venv with the CPU build of torch, pinned by constraints-cpu.txt.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

.PHONY: demo test test-slow test-alone mutants lint bench clean

demo: $(VENV)/.ready  ## GRPO on the embedded model: watch it learn to add (about a quarter of a minute)
	$(BIN)/burnish train

test: $(VENV)/.ready lint  ## linters, type checker and the fast tests; what fails is run once more, alone
	$(BIN)/pytest -n 2 || $(BIN)/pytest --last-failed --last-failed-no-failures none

test-slow: $(VENV)/.ready  ## the tests that take minutes or fetch a model
	$(BIN)/pytest -m slow

test-alone: $(VENV)/.ready  ## each fast test in a process of its own, and each file in a random order (an hour or two)
	$(BIN)/python scripts/each_alone.py

mutants: $(VENV)/.ready  ## plant 100 random slips, one at a time, and count those that the tests notice (hours, resumable)
	$(BIN)/python scripts/mutants.py

bench: $(VENV)/.ready  ## speed on this CPU, with TRL, transformers and vLLM as baselines (about half an hour, resumable); writes docs/performance.md
	$(BIN)/python benchmarks/cpu.py
	$(BIN)/python benchmarks/plots.py
	$(BIN)/python benchmarks/tables.py

lint: $(VENV)/.ready
	$(BIN)/ruff check src tests scripts examples benchmarks
	$(BIN)/ruff format --check src tests scripts examples benchmarks
	$(BIN)/mypy

$(VENV)/.ready: pyproject.toml constraints-cpu.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints-cpu.txt torch
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints-cpu.txt -e '.[all,test]'
	touch $@

clean:
	rm -rf $(VENV) .pytest_cache .ruff_cache .mypy_cache
