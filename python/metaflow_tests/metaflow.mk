# The Metaflow extension: flows with the installed wheel, and their cards in a browser.

.PHONY: test-metaflow bench-metaflow

test-metaflow: setup ## Metaflow flows: artifacts, cards, history, code packages
	RESOURCE_TRACKER_PROFILE=dev python/metaflow_tests/run.sh $(CURDIR)/target/metaflow

bench-metaflow: ## cost of the Metaflow decorator and its card, on a release build
	python/metaflow_tests/run.sh $(CURDIR)/target/metaflow
	$(CURDIR)/target/metaflow/bin/python python/metaflow_tests/bench.py
