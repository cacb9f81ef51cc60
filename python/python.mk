# The Python package, built, installed and tested as a wheel.

.PHONY: test-python test-pythons bench-python

test-python: wheel ## the Python package, installed from its wheel, on Python 3.11
	$(WITH_WHEEL) python/tests/run.sh $(CURDIR)/target/python python3.11

test-pythons: wheel ## the Python package on all versions that this machine has
	$(WITH_WHEEL) python/tests/run.sh $(CURDIR)/target/python

# Compared with psutil, against the budgets in the header of bench.py.
bench-python: ## budgets of the Python package, on a release build
	tools/dist.sh --to target/wheel-release manylinux
	RESOURCE_TRACKER_WHEEL=$$(echo $(CURDIR)/target/wheel-release/*.whl) python/tests/run.sh $(CURDIR)/target/python python3.11
	$(CURDIR)/target/python/python3.11/bin/python python/benches/bench.py
	cargo bench --package resource-tracker --bench reading
