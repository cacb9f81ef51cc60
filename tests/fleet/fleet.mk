# The dataset of a fleet, read by SQL engines.

.PHONY: test-fleet test-fleet-slow

FLEET := $(VENV)/fleet
FLEET_BIN = $${CARGO_TARGET_DIR:-$(CURDIR)/target}

test-fleet: setup ## the dataset of 2,000 runs, beside DuckDB
	[ -x $(FLEET)/bin/python ] || python3 -m venv $(FLEET)
	$(FLEET)/bin/python -m pip install --quiet duckdb pytz
	cargo build --quiet
	cargo build --quiet -p resource-tracker --features parquet --example fleet_runs
	$(FLEET)/bin/python tests/fleet/engines.py --tracker $(FLEET_BIN)/debug/resource-tracker --generator $(FLEET_BIN)/debug/examples/fleet_runs

test-fleet-slow: setup ## the dataset of 100,000 runs on a release build, beside DuckDB and Spark; needs Java 17
	[ -x $(FLEET)/bin/python ] || python3 -m venv $(FLEET)
	$(FLEET)/bin/python -m pip install --quiet duckdb pytz pyspark==4.*
	cargo build --quiet --release
	cargo build --quiet --release -p resource-tracker --features parquet --example fleet_runs
	$(FLEET)/bin/python tests/fleet/engines.py --runs 100000 --engines duckdb,spark --tracker $(FLEET_BIN)/release/resource-tracker --generator $(FLEET_BIN)/release/examples/fleet_runs
	RESOURCE_TRACKER_FLEET_RUNS=20000 cargo test --release -p resource-tracker-cli --test fleet_bucket -- --nocapture summary
