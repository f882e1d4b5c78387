# Everything a user or CI types. `make serve` and `make test` set up what they need and say what they install.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

.PHONY: serve test check venv build format clean

serve: venv
	$(BIN)/topics serve

test: venv
	$(BIN)/python -m pytest

check: venv
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

format: venv
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

venv: $(VENV)/.ready build

$(VENV)/.ready: pyproject.toml setup.py scripts/setup.sh
	PYTHON=$(PYTHON) bash scripts/setup.sh $(VENV)

C_FILES := $(wildcard topics/*/*.c topics/*/*.h)
build: $(VENV)/.built
$(VENV)/.built: $(VENV)/.ready build_ffi.py $(filter-out %/_ring.c %/_codec.c %/_records.c,$(C_FILES))
	$(BIN)/python build_ffi.py
	@touch $@

clean:
	rm -rf $(VENV) build *.egg-info topics/*/*.so topics/*/_*.c .mypy_cache .ruff_cache .pytest_cache
