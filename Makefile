# Two commands do everything on a fresh machine: `make demo` and `make test`.
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
PIP    := $(BIN)/pip --disable-pip-version-check install --quiet --no-compile -c constraints.txt
# On all cores, which pip does not; a package's templates that are no Python count as failures.
COMPILE := $(BIN)/python -m compileall -qq -j 0 $(VENV)/lib || true
# Today's pip, by whichever PYTHON has: it installs in two thirds of the time that the one within Python takes, which is put there where that fails.
NEW_VENV := ($(PYTHON) -m venv --without-pip $(VENV) && ($(PYTHON) -m pip --python $(BIN)/python --disable-pip-version-check \
            install --quiet --no-compile pip || $(BIN)/python -m ensurepip --default-pip))
TORCH  ?= torch   # how pip finds it; for the CPU build on Linux: make test TORCH="torch --index-url <PyTorch's CPU index>"
export OMP_WAIT_POLICY = PASSIVE   # with the default policy a 2-thread run on a busy machine can be 6x slower
# Tests start many processes; a machine that keeps no bytecode would compile the package in each.
export PYTHONDONTWRITEBYTECODE =

.PHONY: demo test coverage test-without-shared test-slow rehearsal check lint setup setup-dev bench bench-quick docs site fuzz clean

demo: setup            ## set up .venv, find the steps of the demo video, name the page
	$(BIN)/stepline demo --out out

test: setup-dev        ## the ordinary tests
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n auto --dist worksteal -m "not slow"

coverage: setup-dev    ## the ordinary tests with the share of lines that they run, in out/coverage
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n auto --dist worksteal -m "not slow" --cov --cov-report=term:skip-covered --cov-report=html:out/coverage

# Where ../shared has no real clips and annotations: what needs them must skip and say so. The clone holds what is committed.
ALONE := $(or $(TMPDIR),/tmp)/stepline-alone
test-without-shared: setup-dev   ## the ordinary tests in a fresh clone with no ../shared beside it, for CI's weekly run
	rm -rf $(ALONE) && mkdir -p $(ALONE) && git clone --quiet . $(ALONE)/clone
	cd $(ALONE)/clone && PYTHONPATH=$(ALONE)/clone OMP_NUM_THREADS=1 $(abspath $(BIN))/python -m pytest -n auto --dist worksteal -m "not slow"
	rm -rf $(ALONE)

test-slow: setup-dev   ## the slow ones: fuzzing, a real language model, other languages
	$(BIN)/stepline weights get whisper-base qwen2.5-coder-0.5b
	$(BIN)/python -m pytest -m slow

rehearsal: setup-dev   ## the papers' numbers as docs/reproduce.md types them, on made files in the official layouts
	$(BIN)/python -m pytest tests/rehearsal -m "slow or not slow" -k "not small" -n auto -rP

HOURS ?= 4
fuzz: setup-dev        ## every reader on other inputs for HOURS (0.01 will do), then commands in odd surroundings, as long at most; failing inputs in found/
	OMP_NUM_THREADS=1 $(BIN)/python tests/fuzz/harness.py --hours $(HOURS) --seed $$(date +%j) --keep found
	OMP_NUM_THREADS=1 $(BIN)/python tests/fuzz/campaign.py --hours $(HOURS) --seed $$(date +%j)

check: lint test       ## what CI runs

lint: setup-dev
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/hadolint Dockerfile

setup: $(VENV)/.ready       ## what a user needs
setup-dev: $(VENV)/.ready-dev

$(VENV)/.ready: pyproject.toml constraints.txt stepline/networks/weights.toml
	test -x $(BIN)/pip || $(NEW_VENV)
	$(PIP) -e .
	$(BIN)/stepline weights get
	touch $@

# torch first and alone, at the tested version: taken along with the rest it may float to a larger build.
$(VENV)/.ready-dev: $(VENV)/.ready
	$(PIP) $(TORCH)
	$(PIP) -e ".[dev,llm,clip,documents,evaluate,links,mcp,train]"
	$(BIN)/python -c "import site; open(site.getsitepackages()[0] + '/lab.pth', 'w').write('$(CURDIR)')"   # so that lab/ finds itself: no wheel holds it
	$(COMPILE)
	touch $@

bench: setup-dev       ## the scripts of lab/ that need no clips of yours; an hour
	$(BIN)/python lab/run_all.py

bench-quick: setup-dev ## the main things against the last release, in ten minutes; OPTIONS="--release 0.2.0" keeps the ratios
	$(BIN)/python lab/quick.py $(OPTIONS)

docs: setup-dev        ## the pages of docs/ that come from the code, and what the notebook prints
	$(BIN)/python docs/generate.py --notebook

site: setup-dev        ## docs/ as a site, in out/site: python -m http.server -d out/site
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build

clean:
	rm -rf $(VENV) out build *.egg-info
