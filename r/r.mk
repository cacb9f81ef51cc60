# The R package: built, checked and installed as users get it.
PACKAGES += libpython3-dev pandoc r-base-core r-cran-jsonlite r-cran-knitr r-cran-r6 r-cran-reticulate \
	r-cran-rmarkdown r-cran-roxygen2 r-cran-testthat r-cran-xml2

.PHONY: test-r bench-r deny-r generate-r

test-r: setup ## the R package, built, checked and installed as users get it
	RESOURCE_TRACKER_PROFILE=dev tests/r/run.sh $(CURDIR)/target/r

bench-r: setup ## the R package's budgets, on a release build
	mkdir -p $(CURDIR)/target/r/release
	CARGO_TARGET_DIR=$(CURDIR)/target R CMD INSTALL --clean --no-docs --library=$(CURDIR)/target/r/release r
	R_LIBS=$(CURDIR)/target/r/release Rscript benches/r.R

deny: deny-r
deny-r:
	command -v cargo-deny >/dev/null || cargo install --locked --quiet cargo-deny
	cargo deny --manifest-path r/src/rust/Cargo.toml check --config deny.toml bans licenses sources

generate: generate-r
generate-r: setup
	r/tools/generate $(CURDIR)/target/r/generate
