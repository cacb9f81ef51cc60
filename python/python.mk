# The Python package: built, installed and tested as users get it.

.PHONY: test-python bench-python

test-python: setup ## the Python package, built and installed as users get it
	RESOURCE_TRACKER_PROFILE=dev python/tests/run.sh $(CURDIR)/target/python

# Side by side with psutil, against the budgets in its header.
bench-python: ## the Python package's budgets, on a release build
	python/tests/run.sh $(CURDIR)/target/python python3.11
	$(CURDIR)/target/python/python3.11/bin/python python/benches/bench.py
	cargo bench --package resource-tracker --bench reading
