"""Tasks that succeed, fail, skip themselves, and run once per value."""

import subprocess
import sys
import time
from datetime import datetime

from airflow.sdk import dag, task
from airflow.sdk.exceptions import AirflowSkipException


@dag(schedule=None, start_date=datetime(2026, 1, 1), catchup=False)
def etl():
    @task
    def extract():
        end = time.thread_time() + 1
        while time.thread_time() < end:
            pass
        program = "import time; held = b'x' * (300 << 20); time.sleep(0.5)"
        subprocess.run([sys.executable, "-c", program], check=True)

    @task
    def skip():
        raise AirflowSkipException("nothing to do")

    @task
    def part(number):
        return number

    @task
    def load():
        raise ValueError("no data")

    extract() >> [skip(), part.expand(number=[1, 2]), load()]


etl()
