# make demo | test | docs | bench | bench-peers | chaos | fuzz: each sets up .venv by itself; a second call installs nothing.
VENV ?= .venv
PYTHON ?= $(shell command -v python3.11 || command -v python3)
# Processes that run tests: more than cores, because system tests mostly wait for other processes.
WORKERS ?= 5
BIN := $(VENV)/bin
READY := $(VENV)/.ready

.PHONY: demo docs test pytest lint bench bench-peers chaos clean fuzz

demo: $(READY)
	$(BIN)/python -m fedsim.demo

# Both at once: mypy needs one core for half a minute. The first failure of either is the failure of the target.
test: $(READY)
	$(MAKE) --no-print-directory --jobs 2 lint pytest

pytest: $(READY)
	$(BIN)/pytest --quiet --numprocesses $(WORKERS)

lint: $(READY)
	$(BIN)/ruff check --quiet .
	$(BIN)/ruff format --check --quiet .
	$(BIN)/mypy

bench: $(READY)
	$(BIN)/python -m benchmarks

# Faults on purpose: 500 in simulations, then 50 on a real federation in network namespaces, which need root; and a soak.
# About an hour and a half on two cores; the tables are printed, chaos/*/chaos.json holds every fault.
chaos: $(READY)
	$(BIN)/fedsim chaos --seed 1 --faults 500 --out chaos/simulated
	$(BIN)/python -m benchmarks soak
	$(BIN)/fedsim chaos --seed 1 --level federation --faults 50 --out chaos/federation

# The documentation site, warnings as errors. Nothing is loaded from a network, neither here nor by its pages.
docs: $(READY)
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --quiet
	@echo "build/site/index.html (with search: $(BIN)/python -m http.server --directory build/site)"

# Damaged files and nonsensical settings through every reader: no error but those for the user may come out.
fuzz: $(READY)
	$(BIN)/python -m tests.fuzz 100000

# W1, W2, W3 beside other frameworks, each installed into an environment of its own. One that cannot be installed is
# reported as not run.
PEERS := .venv-peers
TORCH := $(shell grep -E '^torch(vision)?==' constraints.txt)
PEER_pfl := 'pfl[pytorch]' $(filter torch==%,$(TORCH))
PEER_fedjax := fedjax 'dm-haiku<0.0.13' 'jax<0.4.26' 'jaxlib<0.4.26' 'numpy<2' 'scipy<1.13'
PEER_flgo := flgo $(TORCH)

bench-peers: $(READY) $(foreach name,pfl fedjax flgo,$(PEERS)/$(name)/.ready)
	$(BIN)/python -m benchmarks W1 W2 W3 --peers

# The table and the picture of docs/benchmarks.md, on a machine without other work; begins nothing after nine minutes.
bench-page: $(READY) $(foreach name,pfl fedjax flgo,$(PEERS)/$(name)/.ready)
	$(BIN)/python -m benchmarks W1 W3 W2 startup clients grpc --peers --turns 2 --minutes 9 --into docs/benchmarks.md

$(PEERS)/%/.ready: Makefile constraints.txt
	$(PYTHON) -m venv --clear $(PEERS)/$*
	$(PEERS)/$*/bin/pip install --quiet --disable-pip-version-check $(PEER_$*) && touch $@ || \
	    echo "$* could not be installed: it is left out" >&2

clean:
	rm -rf $(VENV) $(PEERS) build *.egg-info

$(READY): pyproject.toml constraints.txt
	@test -n "$(PYTHON)" || { echo "fedsim needs Python 3.11 or later: install it, or say where it is: make PYTHON=..." >&2; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	    { echo "fedsim needs Python 3.11 or later; $(PYTHON) is older. Say where a newer one is: make PYTHON=..." >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2> /dev/null || \
	    { echo "$(PYTHON) has no venv module: install it (Debian: apt-get install python3-venv)" >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[dev]'
	rm -rf build *.egg-info
	touch $@
