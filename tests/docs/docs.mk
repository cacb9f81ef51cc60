# The documentation: its code blocks are run, and its links are checked.

.PHONY: docs test-docs generate-docs pictures newcomer

DOCS_TEST := python3 tests/docs/run.py --bin $${CARGO_TARGET_DIR:-$(CURDIR)/target}/debug \
	--python $(CURDIR)/target/python/python3.11/bin/python --metaflow $(CURDIR)/target/metaflow/bin/python \
	--r-library $(CURDIR)/target/r/resource.tracker.Rcheck

docs: ## the documentation site, into target/site
	[ -x $(VENV)/docs/bin/python ] || python3 -m venv $(VENV)/docs
	$(VENV)/docs/bin/pip install --quiet "mkdocs==1.6.*" "mkdocs-material==9.8.*"
	NO_MKDOCS_2_WARNING=1 $(VENV)/docs/bin/mkdocs build --strict
	@echo "target/site/index.html"

test-docs: test-python test-metaflow test-r docs ## every block of code in README, docs and examples; one history of all fronts
	python3 -m doctest tests/docs/blocks.py tests/docs/rd.py
	$(DOCS_TEST)
	$(subst run.py,one_history.py,$(DOCS_TEST))
	RESOURCE_TRACKER=unused tests/browser/run site.test.mjs

generate-docs: test-python test-metaflow test-r ## generated pages (python-api, r-reference), and outputs that differ
	$(DOCS_TEST) --update

pictures: ## the pictures of the documentation, made from real runs; about a minute on a quiet machine
	cargo build --quiet --release --package resource-tracker-cli
	tests/docs/pictures.py $${CARGO_TARGET_DIR:-$(CURDIR)/target}/release/resource-tracker

newcomer: ## the README's first commands, in an empty home with empty caches, timed
	tests/docs/newcomer.sh
