# The Airflow plugin: a DAG with the installed wheel.

.PHONY: test-airflow

test-airflow: setup ## tasks of Airflow as runs of the history
	RESOURCE_TRACKER_PROFILE=dev python/airflow_tests/run.sh $(CURDIR)/target/airflow
