# The documentation: its code blocks are run, and its links are checked.

.PHONY: docs test-docs generate-docs newcomer

DOCS_TEST := python3 tests/docs/run.py --bin $${CARGO_TARGET_DIR:-$(CURDIR)/target}/debug \
	--python $(CURDIR)/target/python/python3.11/bin/python --metaflow $(CURDIR)/target/metaflow/bin/python \
	--r-library $(CURDIR)/target/r/resource.tracker.Rcheck

docs: ## the documentation site, into target/site
	[ -x $(VENV)/docs/bin/mkdocs ] || { python3 -m venv $(VENV)/docs && $(VENV)/docs/bin/pip install --quiet "mkdocs==1.6.*"; }
	$(VENV)/docs/bin/mkdocs build --strict --quiet
	@echo "target/site/index.html"

test-docs: test-python test-metaflow test-r docs ## every block of code in README, docs and examples; one history of all fronts
	$(DOCS_TEST)
	$(subst run.py,one_history.py,$(DOCS_TEST))

generate-docs: test-python test-metaflow test-r ## pages generated from the installed packages (python-api, r-reference)
	$(DOCS_TEST) --update

newcomer: ## the README's first commands, in an empty home with empty caches, timed
	tests/docs/newcomer.sh
