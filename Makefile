# Two commands: `make run` shows Foreshock at work, `make test` runs the test suite. Each does its own set-up.
SHELL := /bin/bash
.DEFAULT_GOAL := help
BIN := .venv/bin
FORESHOCK_SHARED ?= ../shared
export FORESHOCK_SHARED
ARGS ?=
# The threads of BLAS and OpenMP would fight with pytest's workers for two cores.
TEST_ENV := OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1

.PHONY: help run test check model profiles bench-simulator bench-forecast lock clean

help:  ## this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | awk -F':.*## ' '{printf "  make %-18s %s\n", $$1, $$2}'

run:  ## a simulated fleet under a surprise burst, beside a plain HPA (ARGS="--trace FILE" plays yours)
	@.ci/venv run
	@$(BIN)/foreshock run $(ARGS)

test:  ## the test suite (ARGS="-k planner" picks some)
	@.ci/venv dev
	@$(TEST_ENV) $(BIN)/pytest -n auto $(ARGS)

check:  ## ruff, mypy --strict for the core and the models, import-linter
	@.ci/venv dev
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports

model:  ## rebuild the artefact that ships in models/default
	@.ci/venv run
	@$(BIN)/foreshock train --out models/default $(ARGS)

profiles:  ## fit the step times of simulator/profiles.py to the public calibration points again, and print them
	@.ci/venv run
	@PYTHONPATH=. $(BIN)/python benchmarks/fit_profiles.py

bench-simulator:  ## the simulator's agreement, speed and determinism beside their targets (ARGS="--quick"; needs the public data)
	@.ci/venv run
	@PYTHONPATH=. OMP_NUM_THREADS=1 $(BIN)/python -W ignore -m benchmarks.bench_simulator $(ARGS)

bench-forecast:  ## the forecast beside five trivial ones, real (needs the public data) and generated traffic apart, and its cost
	@.ci/venv run
	@PYTHONPATH=. $(BIN)/python benchmarks/bench_forecast.py $(ARGS)

lock:  ## resolve pyproject.toml again into requirements/*.lock (needs uv)
	@printf 'setuptools\n' > /tmp/foreshock-build.in
	uv pip compile -q --upgrade --universal --python-version 3.11 --generate-hashes --no-header --no-annotate \
	    --no-emit-index-url --no-emit-find-links --extra training pyproject.toml /tmp/foreshock-build.in -o requirements/run.lock
	uv pip compile -q --upgrade --universal --python-version 3.11 --generate-hashes --no-header --no-annotate \
	    --no-emit-index-url --no-emit-find-links --all-extras pyproject.toml /tmp/foreshock-build.in -o requirements/dev.lock

clean:  ## remove what the commands made here
	rm -rf .venv build *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis out
