# make quickstart   train the bundled model in about a minute, from nothing
# make test         the whole test suite, from nothing
# make docs         pages that are made from the code
# make gpu          this machine's GPU against its CPU, and its speed (make gpu DEVICE=cpu: the same, small)
# Each makes the environment it needs. Choose another interpreter or place: make PYTHON=python3.12 VENV=/tmp/env test
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
DEVICE ?= cuda
OUT ?= runs/quickstart-$(shell date +%Y%m%d-%H%M%S)

.PHONY: quickstart test lint types check clean organisms docs

quickstart: $(VENV)/installed
	$(BIN)/rlvr train quickstart --out $(OUT)

test: $(VENV)/installed
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 --dist loadfile

lint: $(VENV)/installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/installed
	$(BIN)/mypy

check: lint types test

# The bundled models, made again from their seeds and measured against what they are for (a few CPU-minutes each).
organisms: $(VENV)/installed
	for name in nano mini micro; do \
		$(BIN)/python -m rlvr.organisms.make $$name --out src/rlvr/organisms/$$name && \
		$(BIN)/python -m rlvr.organisms.accept $$name || exit 1; \
	done

$(VENV)/installed: pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "rlvr needs Python 3.11 or newer, $(PYTHON) is older; run: make PYTHON=python3.11 $(MAKECMDGOALS)"; exit 1; }
	$(PYTHON) -m venv $(VENV)
	@echo "installing (torch is large: a few minutes the first time) ..."
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable ".[dev]"
	@touch $@

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis

# Pages that are made from the code.
docs: $(VENV)/installed
	$(BIN)/python -m rlvr.pairs > docs/stacking.md

.PHONY: gpu
gpu: $(VENV)/installed
	$(BIN)/python -m rlvr.gpu_check --device $(DEVICE) --out gpu.json

# TRL's and verl's own numbers, made anew in environments of their own (3 GB the first time), and ours held against them.
.PHONY: peers
peers: $(VENV)/installed .venv-trl/installed .venv-verl/installed
	$(BIN)/python peers/make_cases.py
	.venv-verl/bin/python peers/verl_values.py
	.venv-trl/bin/python peers/trl_values.py
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest tests/test_peers.py

.venv-trl/installed: peers/requirements-trl.txt
	$(PYTHON) -m venv .venv-trl
	.venv-trl/bin/python -m pip install --quiet --disable-pip-version-check --requirement $<
	@touch $@

.venv-verl/installed: peers/requirements-verl.txt
	$(PYTHON) -m venv .venv-verl
	.venv-verl/bin/python -m pip install --quiet --disable-pip-version-check --requirement $<
	.venv-verl/bin/python -m pip install --quiet --disable-pip-version-check --no-deps verl==0.9.1
	@touch $@

# Other people's graders in environments of their own (600 MB), and all of them and ours on the audit's pairs, one at a time.
AUDITED := math-verify minerva verl mathruler
.PHONY: audit audit-peers bench-verify
audit-peers: $(VENV)/installed $(AUDITED:%=.venv-audit-%/installed)
	$(BIN)/python audit_peers/run.py

# Both audits in one command: other people's graders and ours on the audit's pairs, and the audit itself on mutants of ours.
# Fails where one of ours judges wrongly on any corpus, or where the audit misses too many mutants.
audit: audit-peers
	$(BIN)/rlvr audit math --corpus wide --fail-on "false_accept,false_reject>0.005,ladder,hostile,killed"
	$(BIN)/python benchmarks/mutation_check.py

# The numbers of verification, written to benchmarks/results: right and wrong on both corpora of mathematics and verdicts
# per CPU-second beside math-verify, mutants, a million broken texts, the sandbox; then the speed of every peer on a part
# of the audit's pairs. About half an hour; fails where a number is missed.
bench-verify: $(VENV)/installed $(AUDITED:%=.venv-audit-%/installed)
	$(BIN)/python benchmarks/verify_speed.py --out benchmarks/results/verify.json
	$(BIN)/python benchmarks/sandbox_speed.py $(if $(filter 0,$(shell id -u)),--first) --json benchmarks/results/sandbox.json
	$(BIN)/python benchmarks/mutation_check.py --out benchmarks/results/mutation_check.json
	$(BIN)/python benchmarks/fuzz_math.py --out benchmarks/results/fuzz_math.json
	$(BIN)/python audit_peers/run.py --speed

.venv-audit-%/installed: audit_peers/requirements-%.txt
	$(PYTHON) -m venv .venv-audit-$*
	.venv-audit-$*/bin/python -m pip install --quiet --disable-pip-version-check --requirement $<
	case $* in \
		minerva) .venv-audit-$*/bin/python -m pip install --quiet --disable-pip-version-check --no-deps lm-eval==0.4.13 ;; \
		verl) .venv-audit-$*/bin/python -m pip install --quiet --disable-pip-version-check --no-deps verl==0.9.1 ;; \
	esac
	@touch $@

# Speed against TRL and against the processor, growth, and the methods' own share: about half an hour on two quiet
# cores. make bench QUICK=--quick tries everything in a few steps; each script runs alone too.
QUICK ?=
.PHONY: bench
bench: $(VENV)/installed .venv-trl/installed
	for name in against_trl to_reward floor growth wide_head credit_share added_cost; do \
		OMP_NUM_THREADS=1 $(BIN)/python benchmarks/$$name.py $(QUICK) || exit 1; \
	done
	$(BIN)/python benchmarks/page.py

# Every paper's claim tested again, by the rules in experiments/; goes on where it ended, a CPU-hour and more from nothing.
JOBS ?= 1
.PHONY: retest
retest: $(VENV)/installed
	$(BIN)/rlvr retest --all --jobs $(JOBS)
