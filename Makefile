# make demo   trains a small ladder twice and writes demo/report.html
# make test   runs every quick test;  make test-all  the browser and kill tests too
# make lint   formatting, lint, types, layering

PYTHON ?= python3
BIN := .venv/bin
PIP_INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt

.PHONY: demo test test-all lint format clean

demo: .venv/run
	$(BIN)/onecurve demo --out demo

test: .venv/dev
	$(BIN)/python -m pytest -m "not slow"

test-all: .venv/dev
	$(BIN)/python -m pytest

lint: .venv/dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/lint-imports
	$(BIN)/pyright --pythonpath $(BIN)/python

format: .venv/dev
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

# One environment in two stages: what the product needs, then the tools that test it.
.venv/run: pyproject.toml constraints.txt
	@echo "Creating .venv and installing onecurve (the first time takes a few minutes) ..."
	$(PYTHON) -m venv .venv
	$(PIP_INSTALL) --editable '.[all]'
	@touch $@

.venv/dev: .venv/run
	@echo "Installing the test tools ..."
	$(PIP_INSTALL) --editable '.[dev]'
	$(PIP_INSTALL) --no-deps mup==1.0.0  # it asks for torchvision and seaborn, which the tests do not need
	@touch $@

clean:
	rm -rf .venv demo dist
