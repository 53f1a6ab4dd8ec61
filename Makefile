# `make demo` and `make test` set up everything they need in .venv by themselves.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
SCENARIO ?= slow-backward
KINDS := not extended
# The suite starts some thousand Pythons: where nothing may be kept compiled, each of them compiles us anew.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo test test-fast coverage test-all steady frameworks gpu lint format package bundle docs release bench fuzz accuracy versus strangers native-check arm-check clean

# torch first and pinned: anything that pulled it in later might choose a build with gigabytes of CUDA.
$(VENV)/.installed: pyproject.toml constraints.txt $(wildcard probes/native/*.[ch])
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt torch
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable ".[demo,mcp,otlp,scale,parquet,web,stacks]"
	touch $@

$(VENV)/.dev-installed: $(VENV)/.installed
	$(BIN)/python -m pip install --quiet --constraint constraints.txt $$($(BIN)/python tests/dev_requirements.py)
	touch $@

demo: $(VENV)/.installed  ## a real 4-rank training with a straggler, and the screens on it
	$(BIN)/tuiadvisor demo $(SCENARIO)

test: $(VENV)/.dev-installed  ## unit tests, screens and one real training, cluster or terminal of each kind; ten minutes to half an hour on two cores
	@failed=0; SKIPS_FILE=$$(mktemp); export SKIPS_FILE; \
	unit=$$(mktemp); trap 'kill $$at_once 2> /dev/null; rm -f $$unit $$SKIPS_FILE' EXIT; trap 'exit 130' INT TERM; \
	echo "unit tests run at the same time; what they print comes when all have ended"; \
	$(BIN)/python tests/yielding.py $(BIN)/python -m pytest --numprocesses 3 --dist worksteal --durations 15 \
		tests/unit tests/snapshot -m "$(KINDS)" > $$unit 2>&1 & \
	at_once=$$!; \
	$(BIN)/python -m pytest --numprocesses 4 --dist loadfile --no-loadscope-reorder --durations 25 tests/integration \
		-m "not alone and $(KINDS)" || failed=1; \
	$(BIN)/python tests/yielding.py --now $$at_once; \
	$(BIN)/python -m pytest --durations 25 tests/integration tests/gpu -m "alone and $(KINDS)" || failed=1; \
	wait $$at_once || failed=1; at_once=; cat $$unit; \
	$(BIN)/python tests/skips.py $$SKIPS_FILE; \
	exit $$failed

test-fast: $(VENV)/.dev-installed  ## unit tests that answer at once, while you write; one to three minutes
	$(BIN)/python -m pytest --quiet --numprocesses 2 tests/unit -m "not slow and not extended"

$(VENV)/.coverage-installed: $(VENV)/.dev-installed
	$(BIN)/python -m pip install --quiet --constraint constraints.txt $$($(BIN)/python tests/dev_requirements.py coverage)
	touch $@

coverage: $(VENV)/.coverage-installed  ## branches that unit tests take, without the command line and devices; ten minutes
	rm -rf build/coverage
	mkdir -p build/coverage
	$(BIN)/coverage run -m pytest --quiet --numprocesses 2 tests/unit -m "$(KINDS)"
	$(BIN)/coverage combine --quiet
	$(BIN)/coverage report
	$(BIN)/coverage json --quiet -o build/coverage/report.json
	$(BIN)/python -c 'import json; found = json.load(open("build/coverage/report.json"))["totals"]; \
		print("branches alone:", format(found["covered_branches"] / found["num_branches"], ".1%"))'

# RUNS suites under each of the conditions in tests/steady.py; hours. One of them alone: make steady RUNS=1 CONDITIONS=half
RUNS ?= 10
CONDITIONS ?= one-core neighbour half
steady: $(VENV)/.dev-installed  ## the suite again and again on one core, beside a busy neighbour, at half speed: what failed, how often
	$(BIN)/python tests/steady.py --runs $(RUNS) $(CONDITIONS)

test-all: KINDS = (extended or not extended)
test-all fuzz: export ALL_EXAMPLES = 1
test-all: test  ## also every other fault, schedule, size and example drawn by lot; much longer

frameworks: $(VENV)/.dev-installed  ## the probe in loops that Transformers, Accelerate, Lightning, DeepSpeed and Ray run
	$(BIN)/python -m pip install --quiet --constraint constraints.txt transformers accelerate lightning deepspeed "ray[train]"
	$(BIN)/python -m pytest tests/integration/test_frameworks.py tests/integration/test_callbacks.py

gpu: $(VENV)/.dev-installed  ## where a GPU is at hand for half an hour: what only it can show, as a table; without one all is skipped
	$(BIN)/python tests/gpu/programme.py

lint: $(VENV)/.dev-installed  ## what CI checks beside the tests
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/tuiadvisor rules check

format: $(VENV)/.dev-installed
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

$(VENV)/.package-installed: $(VENV)/.dev-installed
	$(BIN)/python -m pip install --quiet --constraint constraints.txt $$($(BIN)/python tests/dev_requirements.py package)
	touch $@

package: $(VENV)/.package-installed  ## wheel and sdist in dist/, built, checked, and the wheel tried in an environment of its own
	rm -rf dist/*.whl dist/*.tar.gz
	$(BIN)/python -m build --outdir dist .
	$(BIN)/python -m twine check --strict dist/*.whl dist/*.tar.gz
	$(BIN)/check-wheel-contents dist/*.whl
	$(BIN)/python release/try_wheel.py dist/*.whl
	$(BIN)/python release/manpage.py -o dist/tuiadvisor.1

$(VENV)/.docs-installed: $(VENV)/.installed
	$(BIN)/python -m pip install --quiet --constraint constraints.txt $$($(BIN)/python tests/dev_requirements.py docs)
	touch $@

docs: $(VENV)/.docs-installed  ## the site in build/site: pages by symptom, and a reference made from the code; a link that leads nowhere ends it
	$(BIN)/python release/site_pages.py build/docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

bundle: $(VENV)/.package-installed  ## dist/tuiadvisor.pyz: one file for machines without a network, tried on every Python found here
	$(BIN)/python release/bundle.py
	BUNDLE=dist/tuiadvisor.pyz $(BIN)/python -m pytest tests/integration/test_bundle.py

release: $(VENV)/.dev-installed  ## VERSION=1.2.3: version, news and tag in one commit; nothing is pushed
	$(BIN)/python release/cut.py $(VERSION)

MINUTES ?= 5
bench: $(VENV)/.dev-installed  ## every figure of tests/benchmarks/RESULTS.md, measured side by side; half an hour
	$(BIN)/python tests/benchmarks/side_by_side.py --minutes $(MINUTES)
	$(BIN)/python tests/benchmarks/sections.py
	$(BIN)/python tests/benchmarks/sections.py --ranks 2 --step-ms 5 20
	$(BIN)/python tests/benchmarks/overhead.py --ranks 1
	$(BIN)/python tests/benchmarks/hook_cost.py
	$(BIN)/python tests/benchmarks/many_calls.py
	$(BIN)/python tests/benchmarks/attach_pause.py
	$(BIN)/python tests/benchmarks/memory.py
	$(BIN)/python tests/benchmarks/screens.py
	$(BIN)/python tests/benchmarks/slow_line.py
	$(BIN)/python tests/benchmarks/fold.py
	$(BIN)/python tests/benchmarks/recordings.py
	$(BIN)/python tests/benchmarks/seek.py
	$(BIN)/python tests/benchmarks/imports.py
	$(BIN)/python tests/benchmarks/scale.py
	$(BIN)/python tests/benchmarks/hour.py

TIMES ?= 20
INPUTS ?= 1000000
SEED ?= $(shell date +%s)
FUZZED := fuzz hostile_process import_damage stream_frames stream_recording recording_index advisor_hostile
fuzz: $(VENV)/.dev-installed  ## INPUTS hostile inputs at the decoders, then TIMES as many through the whole chain as a test run tries; half an hour; what fails is seen again with its SEED
	$(BIN)/python tests/fuzz.py --inputs $(INPUTS) --seed $(SEED)
	FUZZ_TIMES=$(TIMES) FUZZ_SEED=$(SEED) $(BIN)/python -m pytest --timeout 0 --verbose $(FUZZED:%=tests/unit/test_%.py)

native-check: $(VENV)/.dev-installed  ## the native core under ASan, UBSan and PYTHONMALLOC=debug, references over 100,000 steps, 1,000 attaches; ten minutes
	$(BIN)/python tests/native_check.py

arm-check: $(VENV)/.dev-installed  ## every way into a process inside an emulated aarch64 machine (qemu-system-aarch64, packages of Debian's); a quarter of an hour
	$(BIN)/python tests/arm/check.py

REPEAT ?= 1
ONLY ?= *
RANKS ?= 1024
accuracy: $(VENV)/.dev-installed  ## faults and innocent oddities on real trainings, then in simulated worlds: said, expected, scores; an hour
	$(BIN)/python tests/accuracy/matrix.py --repeat $(REPEAT) --only '$(ONLY)'
	$(BIN)/python tests/accuracy/matrix.py --severities --repeat $(REPEAT) --only '$(ONLY)'
	$(BIN)/python tests/accuracy/reality.py --real --repeat $(REPEAT)
	$(BIN)/python tests/accuracy/simulate.py --ranks $(RANKS)
	$(BIN)/python tests/accuracy/compositions.py
	-$(BIN)/python tests/accuracy/shapes.py
	-$(BIN)/python tests/accuracy/shapes.py --slow --delays 2
	-$(BIN)/python tests/accuracy/missing_trace.py
	$(BIN)/python tests/accuracy/reality.py
	$(BIN)/python tests/accuracy/scaling_laws.py
	$(BIN)/python tests/accuracy/devices.py
	-$(BIN)/python tests/accuracy/asynchronous.py
	$(BIN)/python tests/accuracy/latency.py
	$(BIN)/python tests/accuracy/latency.py --least
	$(BIN)/python tests/accuracy/bucket_gain.py --backward-ms 5
	$(BIN)/python tests/accuracy/bucket_gain.py --products 8
	-$(BIN)/python tests/accuracy/latency.py --healthy 60 --ranks 2 4 8

versus: $(VENV)/.dev-installed  ## the proof beside the others that docs/comparison.md shows; three quarters of an hour
	-$(BIN)/python tests/accuracy/hidden_rank.py
	$(BIN)/python tests/benchmarks/side_by_side.py --ranks 2 --minutes 20
	$(BIN)/python tests/benchmarks/attach_and_volume.py

# Folder of checkouts of public repositories, and an interpreter that has what the programs import.
STRANGERS_PYTHON ?= $(BIN)/python
strangers: $(VENV)/.dev-installed  ## public training programs in the folder STRANGERS, watched unchanged: on which of them we are right; half an hour
	@test -n "$(STRANGERS)" || { echo "make strangers STRANGERS=FOLDER: a folder of checkouts (nanoGPT, examples, ...)"; exit 2; }
	$(BIN)/python tests/strangers/watch_them.py $(STRANGERS) --python $(STRANGERS_PYTHON) --only '$(ONLY)' --markdown

clean:
	rm -rf $(VENV) build dist .pytest_cache .mypy_cache .ruff_cache
