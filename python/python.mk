# The Python package: built, installed and tested as users get it.

.PHONY: test-python bench-python

test-python:
	python/tests/run.sh $(CURDIR)/target/python

# Side by side with psutil, against the budgets in its header; of the release build that `test-python` installed.
bench-python:
	$(CURDIR)/target/python/python3.11/bin/python python/benches/bench.py
	cargo bench --package resource-tracker --bench reading
