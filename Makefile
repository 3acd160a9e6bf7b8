# make certify   certify the bundled Iris on four emulated MI300X ranks; needs Python 3.10+, no GPU
# make test      the harness's own tests, then the conformance suite under its CI profile, and what communicates in race mode
# make check     lint, format, types
# make clean     remove what the other targets made

PYTHON ?= python3
VENV   ?= .venv
OUTPUT ?= out/certify
JOBS   ?= 3
PIP_INSTALL = $(VENV)/bin/python -m pip install --quiet --disable-pip-version-check -c constraints-ci.txt

.DEFAULT_GOAL := help
.PHONY: help certify test check clean

help:
	@sed -n 's/^# //p' Makefile

certify: $(VENV)/.installed
	@$(VENV)/bin/iris-harness certify --output $(OUTPUT)

test: $(VENV)/.installed-dev
	$(VENV)/bin/python -m pytest tests -n $(JOBS)
	$(VENV)/bin/python -m pytest conformance --profile ci
	$(VENV)/bin/python -m pytest conformance/collectives conformance/ops conformance/x --profile ci --ranks 2 -n 2 --emulator-mode race

check: $(VENV)/.installed-dev
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/mypy

clean:
	rm -rf $(VENV) out build *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis

$(VENV)/.created:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' || \
	  { echo "Python 3.10 or newer is needed, and $(PYTHON) is not: name one with  make PYTHON=python3.12" >&2; exit 1; }
	@echo "Creating $(VENV)"
	@$(PYTHON) -m venv $(VENV) || \
	  { echo "$(PYTHON) cannot create virtual environments: install its venv package" >&2; exit 1; }
	@touch $@

$(VENV)/.installed: $(VENV)/.created pyproject.toml constraints-ci.txt
	@echo "Installing the harness, PyTorch and Triton into $(VENV) (a few minutes the first time)"
	@$(PIP_INSTALL) -e .
	@touch $@

$(VENV)/.installed-dev: $(VENV)/.installed
	@echo "Installing the development tools into $(VENV)"
	@$(PIP_INSTALL) -e '.[dev]'
	@touch $@
