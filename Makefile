# `make run` opens the app, `make test` runs every test; both prepare what they need on a fresh machine.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

.PHONY: run test screenshots lint clean
run: $(VENV)/.app
	$(BIN)/python app.py

test: $(VENV)/.dev
	sh tools/need_chromium.sh
	$(BIN)/python -m pytest

screenshots: $(VENV)/.dev
	sh tools/need_chromium.sh
	$(BIN)/python tools/screenshots.py

lint: $(VENV)/.dev
	$(BIN)/ruff check . && $(BIN)/ruff format --check .

clean:
	rm -rf $(VENV)

# An installed environment is stamped only after pip succeeded, so a broken set-up is tried again.
$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/.app: requirements.txt constraints.txt $(VENV)/bin/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -r requirements.txt -c constraints.txt
	touch $@

$(VENV)/.dev: requirements-dev.txt requirements.txt constraints.txt $(VENV)/bin/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -r requirements-dev.txt -c constraints.txt
	touch $@ $(VENV)/.app
