# The Airflow plugin: a DAG with the installed wheel.

.PHONY: test-airflow

test-airflow: wheel ## tasks of Airflow as runs of the history
	$(WITH_WHEEL) python/airflow_tests/run.sh $(CURDIR)/target/airflow
