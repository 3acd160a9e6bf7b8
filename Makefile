# make certify       certify the bundled Iris on four emulated MI300X ranks; needs Python 3.10 or newer, no GPU
# make test          run the tests that are not marked slow or nightly, then the conformance suite on two ranks, judged apart as certify does
# make test-ci       add the tests marked slow, and world sizes 1 and 4; CI runs this with a third of them, SHARE=1/3 to 3/3
# make test-nightly  run every test, and the suite with random cases, also in the modes race and weak
# make check         run the linter, the formatter's check and the type checker
# make docs          build the documentation site in out/docs; needs no network and no GPU
# make clean         remove everything that the other targets created

PYTHON ?= python3
VENV   ?= .venv
OUTPUT ?= out/certify
JOBS   ?= 4
GROUPS ?= 2
TIMEOUT ?= 600
#: Python compiles a module when it is first imported: most of those that pip installs never are.
PIP_INSTALL = $(VENV)/bin/python -m pip install --quiet --disable-pip-version-check --no-compile -c constraints-ci.txt

.DEFAULT_GOAL := help
.PHONY: help certify test test-ci test-nightly check docs collected clean

help:
	@sed -n 's/^# //p' Makefile

certify: $(VENV)/.compiled
	@$(VENV)/bin/iris-harness certify --output $(OUTPUT)

#: JOBS processes run tests, and GROUPS rank groups run at the same time: each keeps one core busy with compilation.
#: TIMEOUT: the seconds after which a test that hangs fails, so that the others' verdicts are seen. The plan of
#: the gate needs a quarter of it on two cores, no other test a tenth. SHARE: K/N of the tests marked slow or long.
#: CI stops after 25 failures, so that pytest can still list them: on a full disk every test fails, and finally pytest too.
PYTEST      = $(VENV)/bin/python -m pytest
COMMUNICATE = conformance/collectives conformance/ops conformance/x --ranks 2 -n $(GROUPS)

test: $(VENV)/.installed-dev
	$(PYTEST) tests -n $(JOBS) --timeout $(TIMEOUT) -m "not slow and not nightly"
	$(PYTEST) conformance --level ci --ranks 2 -n $(GROUPS) --judge apart

test-ci: $(VENV)/.installed-dev
	$(PYTEST) tests -n $(JOBS) --timeout $(TIMEOUT) --maxfail 25 -m "not nightly" $(if $(SHARE),--share $(SHARE))
	$(PYTEST) conformance --level ci --ranks 4,1 -n $(GROUPS)

test-nightly: $(VENV)/.installed-dev
	$(PYTEST) tests -n $(JOBS) --timeout $(TIMEOUT)
	$(PYTEST) conformance --level dev --ranks 4,1,2,8 -n $(GROUPS)
	$(PYTEST) conformance --level ci --ranks 4,1 -n $(GROUPS) --judge apart
	$(PYTEST) $(COMMUNICATE) --level ci --emulator-mode race
	$(PYTEST) $(COMMUNICATE) --level ci --emulator-mode weak

check: $(VENV)/.installed-dev
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/mypy

#: A warning is an error: a page that nothing leads to, a link to a page or heading that is not there, a docstring that cannot be read.
docs: $(VENV)/.installed-docs
	$(VENV)/bin/python -m sphinx -b html -c docs -E -W --keep-going --quiet . out/docs
	@echo "The site is out/docs/index.html"

#: The processes that run tests find them compiled: each would rewrite the assertions of all test modules for itself.
collected: $(VENV)/.installed-dev
	@mkdir -p out
	@$(PYTEST) tests --collect-only -q -p no:cacheprovider > out/collected.txt || { cat out/collected.txt; exit 1; }

clean:
	rm -rf $(VENV) .nox out build *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis

$(VENV)/.created:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' || \
	  { echo "Python 3.10 or newer is needed, and $(PYTHON) is older: name another one, as in  make PYTHON=python3.12" >&2; exit 1; }
	@echo "Creating $(VENV)"
	@$(PYTHON) -m venv $(VENV) || \
	  { echo "$(PYTHON) cannot create virtual environments: install its venv package" >&2; exit 1; }
	@touch $@

$(VENV)/.installed: $(VENV)/.created pyproject.toml constraints-ci.txt
	@echo "Installing the harness, PyTorch and Triton into $(VENV) (a few minutes the first time)"
	@$(PIP_INSTALL) -e '.[suite]'
	@touch $@

#: On all cores, and with progress: the processes of a run would compile one function after another. Tests begin at once, and share this work.
$(VENV)/.compiled: $(VENV)/.installed
	@echo "Compiling the emulated device's functions for this processor (a minute or two, once)"
	@$(VENV)/bin/iris-harness cache compile
	@touch $@

$(VENV)/.installed-dev: $(VENV)/.installed
	@echo "Installing the development tools into $(VENV)"
	@$(PIP_INSTALL) -e '.[dev]'
	@touch $@

$(VENV)/.installed-docs: $(VENV)/.installed
	@echo "Installing the documentation tools into $(VENV)"
	@$(PIP_INSTALL) -e '.[docs]'
	@touch $@

#: What CI needs, at once: every run of pip builds the package and resolves all requirements again.
$(VENV)/.installed-ci: $(VENV)/.created pyproject.toml constraints-ci.txt
	@echo "Installing everything into $(VENV)"
	@$(PIP_INSTALL) -e '.[dev,docs]'
	@touch $(VENV)/.installed
	@touch $(VENV)/.installed-dev $(VENV)/.installed-docs $@
