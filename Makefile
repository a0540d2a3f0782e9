# All that a contributor types; everything runs in .venv, which `make install` makes.
PYTHON ?= python3
BIN := .venv/bin

DEMO_READY := $(if $(wildcard .venv/.installed),.venv/.installed,.venv/.demo)

define new_venv
@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	echo "cer-gpu needs Python 3.11 or newer, but '$(PYTHON)' is: $$($(PYTHON) --version 2>&1)" >&2; \
	echo "name another one: make install PYTHON=python3.12" >&2; exit 1; }
$(PYTHON) -m venv .venv
endef

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help install demo demo-spark test test-rest test-long test-all test-soak lint docs site wheel sbom bench bench-quick gpu-check clean

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "make %-11s %s\n", $$1, $$2}' $(firstword $(MAKEFILE_LIST))

install: .venv/.installed ## Make .venv with the pinned versions (again only after a change of them)

.venv/.installed: pyproject.toml constraints.txt
	$(new_venv)
	$(BIN)/python -m pip install --quiet -c constraints.txt -e '.[dev,docs,spark,bench,sigma,evtx,delta,iceberg,explore]'
	@touch $@

# no more than the demo needs, unless all is there
.venv/.demo: pyproject.toml constraints.txt
	$(new_venv)
	$(BIN)/python -m pip install --quiet --no-compile -c constraints.txt -e '.[spark]'
	@touch $@

demo: $(DEMO_READY) ## Find complex events in 665,297 flight events, and on Spark (two minutes the first time)
	$(BIN)/python examples/demo.py

demo-spark: $(DEMO_READY) ## The same flights on Spark, by all three distributions
	$(BIN)/python examples/spark_flights.py

.venv/s3/.installed: tests/s3_server.txt | .venv/.installed
	$(PYTHON) -m venv .venv/s3
	.venv/s3/bin/python -m pip install --quiet --no-deps -r tests/s3_server.txt
	@touch $@

.venv/lab/.installed: tests/jupyterlab.txt | .venv/.installed
	$(BIN)/python -m venv .venv/lab
	.venv/lab/bin/python -m pip install --quiet --no-deps -r tests/jupyterlab.txt
	@touch $@

TESTS := $(BIN)/python -m pytest -q -n auto --dist loadfile

test: install ## What tells within five minutes of two cores that the project works
	$(TESTS) -m "not long"

test-rest: install .venv/s3/.installed .venv/lab/.installed ## What `make test` leaves out: tests marked long, and random cases, four times as many
	CER_GPU_EXAMPLES=12 $(TESTS) -m "long or drawn"

test-long: install .venv/s3/.installed .venv/lab/.installed ## Only the tests marked long
	$(TESTS) -m long

test-all: install .venv/s3/.installed .venv/lab/.installed ## Everything, with random cases drawn anew, ten times as many as in `make test`
	CER_GPU_DRAWS=anew CER_GPU_EXAMPLES=30 $(TESTS)

test-soak: install ## Run the property tests on some 100,000 random cases, and kill 520 processes (over an hour)
	CER_GPU_EXAMPLES=6000 CER_GPU_KILLS=100 CER_GPU_STREAM_KILLS=20 CER_GPU_FOLLOW_KILLS=50 CER_GPU_JOB_KILLS=100 CER_GPU_JOB_RUNS=1000 CER_GPU_FILE_CASES=1000 CER_GPU_FILE_JOBS=300 CER_GPU_WARM=1 $(BIN)/python -m pytest -q \
		tests/engine/test_whole_language.py tests/engine/test_rest_of_language.py tests/engine/test_properties.py \
		tests/test_reference.py tests/runtime/test_products.py tests/runtime/test_recogniser.py \
		tests/engine/test_long_streams.py tests/engine/test_ends.py tests/engine/test_share.py tests/engine/test_checkpoint.py \
		tests/engine/test_advance.py tests/follow/test_kills.py tests/follow/test_jobs.py tests/follow/test_jobs_killed.py tests/spark/test_streaming_kills.py tests/spark/test_pieces.py tests/spark/test_file_layouts.py \
		tests/parallel/test_key_threads.py tests/parallel/test_threads.py tests/parallel/test_ranges_of_files.py \
		tests/spark/test_distribution.py tests/test_query_set.py tests/test_warming.py tests/ceql/test_changed_queries.py \
		tests/io/test_damaged_files.py tests/io/test_texts.py tests/kernels/test_nvrtc.py tests/predicates/test_cuda.py tests/predicates/test_cuda_properties.py

lint: install ## Check style, types (their completeness too) and import directions
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/python tests/type_completeness.py
	$(BIN)/lint-imports

docs: install ## Write the generated pages: errors, API, command line, the picture of the packages, the grammar for editors
	$(BIN)/python docs/make_errors.py
	$(BIN)/python docs/make_api.py
	$(BIN)/python docs/make_command_line.py
	$(BIN)/python docs/make_architecture.py
	$(BIN)/python docs/make_textmate.py

site: install ## Make the site of README, docs/ and the reference of the Python API, to be searched offline; a broken link fails
	$(BIN)/pdoc --docformat numpy --no-show-source --template-directory docs/templates -o build/reference/api cer_gpu cer_gpu.frames cer_gpu.report cer_gpu.plot cer_gpu.rules cer_gpu.sigma spark_glue
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict
	$(BIN)/python docs/check_links.py build/site
	@echo "open build/site/index.html"

wheel: install ## Build an sdist and a wheel into dist/, and try the wheel in a clean environment, by pipx and by uvx
	$(BIN)/python tests/wheel_check.py

sbom: install ## Write a bill of materials of the wheel in dist/, in CycloneDX
	$(BIN)/python tests/sbom.py

bench: install ## Run all benchmarks, with peers, and write benchmarks/results/ (about 15 minutes)
	$(BIN)/python benchmarks/run.py --save

bench-quick: install ## All but peers, in under two minutes, as ratios to the floor and to the results that are kept
	$(BIN)/python benchmarks/run.py --events 1000000 --repeat 3 --seconds 0 --one-process --compare

gpu-check: ## Check everything on a GPU: the suite, compute-sanitizer, the benchmark (skipped where there is none)
	$(if $(wildcard $(BIN)/python),$(BIN)/python,$(PYTHON)) tests/gpu_check.py

clean: ## Remove .venv, caches and what a build leaves
	rm -rf .venv build dist *.egg-info .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache
	find . -name __pycache__ -type d -not -path './.git/*' -prune -exec rm -rf {} +
