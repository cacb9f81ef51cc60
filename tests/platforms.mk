# Tests of other operating systems that are possible on Linux. Not part of `make test`: the packages are large, and the
# standard library is built from source.

.PHONY: test-windows test-macos
CROSS := $(CURDIR)/target/cross
CROSS_PACKAGES := rustc-web cargo-web rust-web-src
WINDOWS_PACKAGES := gcc-mingw-w64-x86-64 wine wine64 python3

test-windows: ## the command built for Windows, and run under wine
	$(call install,$(CROSS_PACKAGES) $(WINDOWS_PACKAGES))
	tests/windows/run.sh $(CROSS)

# Without the network client: its cryptography is C code, which needs Apple's headers.
test-macos: ## core and command type-checked for macOS
	$(call install,$(CROSS_PACKAGES))
	PATH=/usr/bin:/bin RUSTC=/usr/bin/rustc RUSTC_BOOTSTRAP=1 CARGO_TARGET_DIR=$(CROSS) /usr/bin/cargo check \
	  -Zbuild-std=std,panic_abort --target aarch64-apple-darwin \
	  -p resource-tracker -p resource-tracker-cli --no-default-features --features resource-tracker/parquet
