# Every target sets up by itself what it needs. Plain `make` prints this list.
.DEFAULT_GOAL := help
PYTHON ?= python3
CHECK := $(PYTHON) scripts/check.py
VENV_PYTHON := .venv/bin/python
MODEL := cargo run --quiet --profile model -p quorlock-model --

help: ## print this list
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "  make %-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: ## make .venv and node_modules
	@$(PYTHON) scripts/environment.py

demo: ## show the main job on five real servers (a quarter of a minute, once it is built)
	@$(CHECK) build
	@$(VENV_PYTHON) -m demo

test: ## run everything: lints, types, Rust, Python and Node tests on real servers
	@$(CHECK)

lint: ## only lints and types
	@$(CHECK) lint

test-rust: ## only Rust
	@$(CHECK) rust

test-python: ## only Python (builds the wheel's debug variant)
	@$(CHECK) python

test-node: ## only Node (builds the addon's debug variant)
	@$(CHECK) node

test-redis62: setup ## all tests with servers on Redis 6.2, the oldest that is supported
	@$(PYTHON) scripts/old_server.py cargo test --quiet -p quorlock
	@$(PYTHON) scripts/old_server.py $(CHECK) python node

model: ## search every schedule of small worlds, over the state machines that ship (some minutes)
	@$(MODEL) search

model-long: ## the same with liveness from every state; larger worlds, for SECONDS=3600
	@$(MODEL) search --every
	@$(MODEL) search --long --seconds $(or $(SECONDS),3600)

soak: ## random schedules for SECONDS=600, from a new seed
	@$(MODEL) soak --seconds $(or $(SECONDS),600)

teeth: ## break a copy of the protocol, and of the session with a server, in every listed way; each must be noticed
	@$(MODEL) teeth --write
	@$(PYTHON) scripts/session_mutants.py

torture: ## fork, interrupt, cancel and end programs as often as it takes (an hour)
	@$(CHECK) build
	QUORLOCK_TORTURE=1 $(VENV_PYTHON) -m pytest -q -rP tests/torture
	QUORLOCK_TORTURE=1 node --test tests/torture/*.test.mjs

chaos: ## break real servers, networks, clocks and clients for SECONDS=600, from a new seed
	@$(CHECK) build
	@$(VENV_PYTHON) -m tests.chaos --seconds $(or $(SECONDS),600)

compare: ## what COMPARE.md says of other libraries, by running them (twenty minutes; COMPARE="pottery" for less)
	@$(CHECK) build
	@$(VENV_PYTHON) -m bench.compare $(COMPARE)

bench: setup ## speed, side by side with other libraries (two hours; BENCH="--quick single" for less)
	@$(VENV_PYTHON) -m bench $(BENCH)

guard: setup ## count the instructions that a lock takes the protocol's machines
	@$(VENV_PYTHON) -m bench.guard

coverage: ## how many lines of the core the Rust tests run; fails below the limits
	@$(PYTHON) scripts/coverage.py

wheel: setup ## build the release wheel into dist/
	$(VENV_PYTHON) -m maturin build --release --locked --out dist

npm: setup ## build the release addon and pack the npm package into dist/
	npm run build
	mkdir -p dist && npm pack --pack-destination dist

clean: ## remove all that was built or installed here
	rm -rf target dist .venv node_modules bench/node_modules .pytest_cache .mypy_cache .ruff_cache .hypothesis
	rm -f bindings-node/*.node bindings-python/python/quorlock/*.so

.PHONY: help setup demo test lint test-rust test-python test-node test-redis62 model model-long soak teeth torture chaos compare bench guard coverage wheel npm clean
