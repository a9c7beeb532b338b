# How to build, try and test tidegate. `make help` lists the targets.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

# Everything is built in the release profile, so that dependencies are compiled once for running, testing and benching.
TARGET_DIR := $(abspath $(or $(CARGO_TARGET_DIR),target))
BINARY := target/release/tidegate
GUEST := --release --target wasm32-wasip2
GUEST_DIR := $(TARGET_DIR)/guests
BUILT := $(GUEST_DIR)/wasm32-wasip2/release

COMPONENTIZE_PY := 0.25.1
PYTHON_ENV := $(TARGET_DIR)/python-env
PYTHON_OPERATORS := examples/wordcount-python/split.wasm examples/wordcount-python/count.wasm

say = @printf '\033[1m%s\033[0m\n' '$(1)'

.PHONY: help
help: ## List the targets.
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

.PHONY: setup
setup: ## Set up what is missing: the WebAssembly target of Rust.
	@command -v cargo > /dev/null || { echo 'cargo is missing: install Rust, for instance with rustup' >&2; exit 1; }
	@[ -d "$$(rustc --print sysroot)/lib/rustlib/wasm32-wasip2" ] || { \
	  echo 'adding the target wasm32-wasip2'; rustup target add wasm32-wasip2; }

.PHONY: binary
binary: setup
	$(call say,Building tidegate. The first time this takes some minutes.)
	@cargo build --release --quiet --package tidegate
	@if [ "$(TARGET_DIR)" != "$(CURDIR)/target" ]; then \
	  mkdir -p target/release && cp -u "$(TARGET_DIR)/release/tidegate" $(BINARY); fi

# One line per component: where cargo leaves it, and where its job file expects it.
define COMPONENTS
wordcount_split     wordcount/split
wordcount_count     wordcount/count
even_odd_route      even-odd/route
even_odd_sum        even-odd/sum
keyed_sum_parse     keyed-sum/parse
keyed_sum_sum       keyed-sum/sum
dead_letter_parse   dead-letter/parse
endef
export COMPONENTS

.PHONY: examples
examples: setup
	$(call say,Building the operators of the examples.)
	@cd examples && CARGO_TARGET_DIR="$(GUEST_DIR)" cargo build --quiet $(GUEST)
	@while read -r built component; do cp -u "$(BUILT)/$$built.wasm" "examples/$$component.wasm"; done <<< "$$COMPONENTS"

# Without Python everything but its example works, so only the tests insist on it.
.PHONY: python-examples
python-examples:
	@if python3 -c 'import venv, ensurepip' 2> /dev/null; then $(MAKE) --no-print-directory $(PYTHON_OPERATORS); \
	  else echo 'leaving out examples/wordcount-python: it needs Python 3.10 or newer with its venv module'; fi

$(PYTHON_OPERATORS): examples/wordcount-python/%.wasm: examples/wordcount-python/%.py $(wildcard wit/*.wit) | $(PYTHON_ENV)/.ready-$(COMPONENTIZE_PY)
	$(call say,Building $@.)
	@cd examples/wordcount-python && \
	  "$(PYTHON_ENV)/bin/componentize-py" --wit-path ../../wit --world operator componentize $* --stub-wasi -o $*.wasm > /dev/null

$(PYTHON_ENV)/.ready-$(COMPONENTIZE_PY):
	$(call say,Setting up an environment for operators in Python.)
	@command -v python3 > /dev/null || { echo 'python3 is missing: install Python 3.10 or newer with its venv module' >&2; exit 1; }
	@python3 -m venv "$(PYTHON_ENV)" || { echo 'python3 has no venv module: on Debian, apt-get install python3-venv' >&2; exit 1; }
	@"$(PYTHON_ENV)/bin/pip" install --quiet --disable-pip-version-check componentize-py==$(COMPONENTIZE_PY)
	@touch $@

.PHONY: test-guests
test-guests: setup
	$(call say,Building the operators of the tests.)
	@cd tests/guests && CARGO_TARGET_DIR="$(GUEST_DIR)" cargo build --quiet $(GUEST) --workspace --examples
	@mkdir -p target/test-guests && cp -u "$(BUILT)"/examples/*.wasm target/test-guests

.PHONY: build
build: binary examples python-examples ## Build target/release/tidegate and the operators of all examples.

.PHONY: demo
demo: build ## Count the words of a text and show the most frequent ones.
	$(call say,Running: $(BINARY) run examples/wordcount/job.toml)
	@$(BINARY) run examples/wordcount/job.toml
	$(call say,The most frequent words. Counts run: each word is written as often as it is read. The last is the largest.)
	@cat examples/wordcount/out/part-* | sort -t "$$(printf '\t')" -k1,1 -k2,2nr | awk -F '\t' '!seen[$$1]++ { print $$2 "\t" $$1 }' | sort -k1,1nr -k2 | sed -n 1,10p

.PHONY: test
test: build $(PYTHON_OPERATORS) test-guests ## Set up and run all tests.
	$(call say,Testing the SDK and the operators of the examples.)
	@cd guest-sdk && CARGO_TARGET_DIR="$(GUEST_DIR)" cargo test --release --quiet
	@cd examples && CARGO_TARGET_DIR="$(GUEST_DIR)" cargo test --release --quiet
	$(call say,Testing tidegate.)
	@TIDEGATE_BIN="$(CURDIR)/$(BINARY)" cargo test --release --workspace

.PHONY: bench
bench: build test-guests ## Run the benchmarks.
	@cargo bench --package tidegate

.PHONY: mutants
mutants: setup ## Break the rules one at a time and show that a test notices.
	@tests/mutants/run

.PHONY: clean
clean: ## Remove what was built and what the examples wrote.
	rm -rf target examples/*/out examples/*/*.wasm
