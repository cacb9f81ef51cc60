# The Metaflow extension: flows with the installed wheel, and their cards in a browser.

.PHONY: test-metaflow bench-metaflow

test-metaflow: wheel ## Metaflow flows: artifacts, cards, history, code packages
	$(WITH_WHEEL) python/metaflow_tests/run.sh $(CURDIR)/target/metaflow

bench-metaflow: ## cost of the Metaflow decorator and its card, on a release build
	tools/dist.sh --to target/wheel-release manylinux
	RESOURCE_TRACKER_WHEEL=$$(echo $(CURDIR)/target/wheel-release/*.whl) python/metaflow_tests/run.sh $(CURDIR)/target/metaflow
	$(CURDIR)/target/metaflow/bin/python python/metaflow_tests/bench.py
