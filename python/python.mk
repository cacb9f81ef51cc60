# The Python package, built, installed and tested as a wheel.

.PHONY: test-python test-pythons bench-python

test-python: setup ## the Python package, installed from its wheel, on Python 3.11
	RESOURCE_TRACKER_PROFILE=dev python/tests/run.sh $(CURDIR)/target/python python3.11

test-pythons: setup ## the Python package on all versions that this machine has
	RESOURCE_TRACKER_PROFILE=dev python/tests/run.sh $(CURDIR)/target/python

# Compared with psutil, against the budgets in the header of bench.py.
bench-python: ## budgets of the Python package, on a release build
	python/tests/run.sh $(CURDIR)/target/python python3.11
	$(CURDIR)/target/python/python3.11/bin/python python/benches/bench.py
	cargo bench --package resource-tracker --bench reading
