# The R package, built, checked and installed from its tarball.
PACKAGES += libpython3-dev pandoc r-base-core r-cran-future r-cran-jsonlite r-cran-knitr r-cran-r6 r-cran-reticulate \
	r-cran-rmarkdown r-cran-roxygen2 r-cran-testthat r-cran-xml2

# For R CMD check --as-cran: its check of shell scripts, of help pages and of the manual.
CRAN_PACKAGES := devscripts iproute2 qpdf texlive-fonts-recommended texlive-latex-recommended tidy xz-utils

.PHONY: test-r test-r-cran bench-r deny-r generate-r

test-r: setup ## the R package, checked and installed from its tarball
	RESOURCE_TRACKER_PROFILE=dev tests/r/run.sh $(CURDIR)/target/r

test-r-cran: setup ## R CMD check --as-cran of the R package with its crates, without network
	$(call install,$(CRAN_PACKAGES))
	RESOURCE_TRACKER_PROFILE=dev r/tools/vendor.sh $(CURDIR)/target/r/vendored
	tests/r/cran.sh $(CURDIR)/target/r/vendored/resource.tracker_*.tar.gz $(CURDIR)/target/r/cran

bench-r: setup ## budgets of the R package, on a release build
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
