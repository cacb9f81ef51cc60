# The dataset of a fleet, read by SQL engines, and live telemetry.

.PHONY: test-fleet test-fleet-slow test-telemetry

FLEET := $(VENV)/fleet
FLEET_BIN = $${CARGO_TARGET_DIR:-$(CURDIR)/target}

test-fleet: setup test-telemetry ## the dataset of 2,000 runs, beside DuckDB
	[ -x $(FLEET)/bin/python ] || python3 -m venv $(FLEET)
	$(FLEET)/bin/python -m pip install --quiet duckdb pytz sqlglot
	cargo build-for-tests
	$(FLEET)/bin/python tests/fleet/engines.py --tracker $(FLEET_BIN)/debug/resource-tracker --generator $(FLEET_BIN)/debug/examples/fleet_runs

test-telemetry: setup ## metrics by OTLP, textfile, and Prometheus and Pushgateway of Debian
	[ -x $(FLEET)/bin/python ] || python3 -m venv $(FLEET)
	$(FLEET)/bin/python -m pip install --quiet opentelemetry-proto opentelemetry-semantic-conventions prometheus_client
	{ command -v prometheus && command -v prometheus-pushgateway; } >/dev/null || { \
	  $(SUDO) apt-get update -qq; \
	  DEBIAN_FRONTEND=noninteractive $(SUDO) apt-get install -y -qq --no-install-recommends prometheus prometheus-pushgateway >/dev/null; \
	}
	cargo build-for-tests
	$(FLEET)/bin/python tests/fleet/telemetry.py --tracker $(FLEET_BIN)/debug/resource-tracker

test-fleet-slow: setup ## the dataset of 100,000 runs on a release build, beside DuckDB and Spark; needs Java 17
	[ -x $(FLEET)/bin/python ] || python3 -m venv $(FLEET)
	$(FLEET)/bin/python -m pip install --quiet duckdb pytz sqlglot pyspark==4.*
	cargo build --quiet --release
	cargo build --quiet --release -p resource-tracker --features parquet --example fleet_runs
	$(FLEET)/bin/python tests/fleet/engines.py --runs 100000 --engines duckdb,spark --tracker $(FLEET_BIN)/release/resource-tracker --generator $(FLEET_BIN)/release/examples/fleet_runs
	RESOURCE_TRACKER_FLEET_RUNS=20000 cargo test --release -p resource-tracker-cli --test fleet_bucket -- --nocapture summary
	RESOURCE_TRACKER_PROFILE=dev $(FLEET)/bin/python -m pip install --quiet --force-reinstall polars pyarrow pandas==2.* .
	$(FLEET)/bin/python tests/fleet/frames.py --generator $(FLEET_BIN)/release/examples/fleet_runs
