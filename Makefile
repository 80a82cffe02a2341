# `make run` opens the app. `make check`, `make test` and `make slow` are the three tiers of tests (CONTRIBUTING.md).
# Each prepares what it needs on a fresh machine.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

# Hundreds of tests start the app, a command or a job, and each would compile the sources again.
unexport PYTHONDONTWRITEBYTECODE

# Tests that only read the sources; they belong to `make check`.
OF_SOURCES := tests/test_imports.py tests/test_written.py tests/ui/test_lengths.py

# Tests run in parallel, one thread per worker, module by module. An idle worker takes the next module.
WORKERS ?= 2
PYTEST := OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n $(WORKERS) --dist loadscope --durations 15 \
	$(OF_SOURCES:%=--ignore=%)
MINUTES ?= 5
TARGETS ?= safetensors gguf gguf_settings torch index config quantised adapter tokenizer \
	verifier report_json report_html signature timestamp commitment backup case_archive recipients \
	answers answers_archive report_archive audit_log

.PHONY: run check types rules test slow every docs reproduce bench fuzz screenshots clean
# Also opens the browser, except with IRWM_BROWSER= make run.
run: $(VENV)/.app
	IRWM_BROWSER=$${IRWM_BROWSER-1} $(BIN)/python app.py

# Below a minute: types, style and import rules.
check: $(VENV)/.dev
	$(MAKE) --no-print-directory --jobs 2 --output-sync types rules

types: $(VENV)/.dev
	$(BIN)/mypy

rules: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports --no-cache
	$(BIN)/python -m pytest -q --noconftest $(OF_SOURCES)

# Below 6 minutes on two idle cores: every concept once.
test: $(VENV)/.dev
	sh tools/need_tools.sh
	$(PYTEST) --tier quick

# About 40 minutes on two cores: all other tests. Run it before an issue is called resolved.
slow: $(VENV)/.dev
	sh tools/need_tools.sh
	$(PYTEST) --tier slow

# The tiers sample the longest sweeps; `make every` runs those tests in full: every family in every format, the
# calibration of tracing on every damage, a thousand wrong keys, every value of every report. The paper's own experiments are `make reproduce`.
SAMPLED := $(shell grep -rl --include='test_*.py' 'mark\.sampled\|mark\.in_full\|in_full: bool' tests)
every: $(VENV)/.dev
	$(PYTEST) --every $(SAMPLED)

# Writes the pages that follow from data, and measures each table of docs/ that is older than the code it depends on
# again; some take hours. To list these tables: `python -m benchmarks.written`.
docs: $(VENV)/.dev
	sh tools/need_tools.sh chromium
	$(BIN)/python -m tools.families > docs/families.md
	$(BIN)/python -m tools.layer0
	$(BIN)/python -m irwm.report.structure > docs/report-schema.json
	$(BIN)/python -m benchmarks.written --run

# The paper's tables and figures on MODELS (folders, or NAME=FOLDER), by default the bundled trained models, written to
# docs/reproduction: about an hour on two cores. EXTRA="--only pruning", "--quick", "--resume" ...
# DEVICE=cuda uses a GPU. It prints the memory that the models need before it starts.
MODELS ?=
EXTRA ?=
DEVICE ?= cpu
reproduce: $(VENV)/.dev
	OMP_NUM_THREADS=1 $(BIN)/python -m benchmarks.reproduce $(MODELS) --device $(DEVICE) $(EXTRA)

# The claims about speed and memory, on synthetic models of 8B geometry (about 25 GB of disk), written to docs/speed.
# BENCH="--only insertion --folder /mnt/disk --write", BENCH=--quick ...
BENCH ?= --write
bench: $(VENV)/.dev
	sh tools/need_tools.sh chromium
	$(BIN)/python -m benchmarks.speed $(BENCH)

# Fuzzes every parser for MINUTES each; `make slow` fuzzes each for seconds.
fuzz: $(VENV)/.dev
	for target in $(TARGETS); do $(BIN)/python -m tests.fuzz.run $$target -max_total_time=$$(($(MINUTES) * 60)) || exit 1; done

screenshots: $(VENV)/.dev
	sh tools/need_tools.sh chromium
	$(BIN)/python -m tools.screenshots

clean:
	rm -rf $(VENV)

# The stamp of an environment is written only after pip succeeded, so a broken set-up is tried again.
$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV)

# pip install --require-hashes: every file installed for the app must have a hash in the lock.
$(VENV)/.app: requirements.lock requirements-cuda.lock tools/set_up.py $(VENV)/bin/python
	$(BIN)/python -m tools.set_up
	touch $@

$(VENV)/.dev: requirements-dev.txt requirements-cluster.txt requirements-release.txt requirements-stores.txt requirements.txt constraints.txt $(VENV)/.app
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -r requirements-dev.txt -c constraints.txt
	touch $@
