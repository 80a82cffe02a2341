# `make run` opens the app. `make check`, `make test` and `make slow` are the three tiers of tests (CONTRIBUTING.md).
# Each prepares what it needs on a fresh machine.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

# Hundreds of tests start the app, a command or a job, each of which would compile the sources again.
unexport PYTHONDONTWRITEBYTECODE

# Tests that read the sources alone; they belong to `make check`.
OF_SOURCES := tests/test_imports.py tests/ui/test_lengths.py

# Tests run side by side, one thread each, module by module: whoever is done takes the next.
WORKERS ?= 2
PYTEST := OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n $(WORKERS) --dist loadscope --durations 15 \
	$(OF_SOURCES:%=--ignore=%)
MINUTES ?= 5
TARGETS ?= safetensors gguf gguf_settings torch index config quantised adapter tokenizer \
	verifier report_json report_html signature timestamp commitment backup case_archive recipients \
	answers answers_archive report_archive audit_log

.PHONY: run check types rules test slow every docs reproduce bench fuzz screenshots clean
# Opens the browser too; IRWM_BROWSER= make run leaves it alone.
run: $(VENV)/.app
	IRWM_BROWSER=$${IRWM_BROWSER-1} $(BIN)/python app.py

# Below a minute: types, and beside them style and which module may import which.
check: $(VENV)/.dev
	$(MAKE) --no-print-directory --jobs 2 --output-sync types rules

types: $(VENV)/.dev
	$(BIN)/mypy

rules: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/python -m pytest -q --noconftest $(OF_SOURCES)

# Below 6 minutes on two idle cores: every concept once.
test: $(VENV)/.dev
	sh tools/need_tools.sh
	$(PYTEST) --tier quick

# About 50 minutes on two cores: all the rest. It runs before an issue is called resolved.
slow: $(VENV)/.dev
	sh tools/need_tools.sh
	$(PYTEST) --tier slow

# The tiers sample the longest sweeps; `make every` runs those tests in full: every family in every format, the
# calibration of tracing on every damage, a thousand wrong keys, every value of every report. The paper's own experiments are `make reproduce`.
SAMPLED := $(shell grep -rl --include='test_*.py' 'mark\.sampled\|mark\.in_full\|in_full: bool' tests)
every: $(VENV)/.dev
	$(PYTEST) --every $(SAMPLED)

# Measures again each table of docs/ that is older than the code it depends on; some of them take hours. Which these are:
# `python -m benchmarks.written`.
docs: $(VENV)/.dev
	sh tools/need_tools.sh chromium
	$(BIN)/python -m benchmarks.written --run

# The paper's tables and figures on MODELS (folders, or NAME=FOLDER), by default the trained models that come along,
# written to docs/reproduction: half an hour or so on two cores. EXTRA="--only pruning", "--quick", "--resume" ...
# DEVICE=cuda where there is a GPU; before anything runs it says what memory the models need.
MODELS ?=
EXTRA ?=
DEVICE ?= cpu
reproduce: $(VENV)/.dev
	OMP_NUM_THREADS=1 $(BIN)/python -m benchmarks.reproduce $(MODELS) --device $(DEVICE) $(EXTRA)

# What was promised of speed and memory, on made-up models of 8B geometry (some 25 GB of disk), written to docs/speed.
# BENCH="--only insertion --folder /mnt/disk --write", BENCH=--quick ...
BENCH ?= --write
bench: $(VENV)/.dev
	sh tools/need_tools.sh chromium
	$(BIN)/python -m benchmarks.speed $(BENCH)

# Every parser fuzzed for MINUTES each; `make slow` gives them seconds.
fuzz: $(VENV)/.dev
	for target in $(TARGETS); do $(BIN)/python -m tests.fuzz.run $$target -max_total_time=$$(($(MINUTES) * 60)) || exit 1; done

screenshots: $(VENV)/.dev
	sh tools/need_tools.sh chromium
	$(BIN)/python -m tools.screenshots

clean:
	rm -rf $(VENV)

# An installed environment is stamped only after pip succeeded, so a broken set-up is tried again.
$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV)

# pip install --require-hashes: every file that is installed for the app must have a hash of the lock.
$(VENV)/.app: requirements.lock requirements-cuda.lock tools/set_up.py $(VENV)/bin/python
	$(BIN)/python -m tools.set_up
	touch $@

$(VENV)/.dev: requirements-dev.txt requirements-cluster.txt requirements.txt constraints.txt $(VENV)/.app
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -r requirements-dev.txt -c constraints.txt
	touch $@
