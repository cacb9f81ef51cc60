"""Two runs of Python, one of R and two of the command with one job name are listed, compared and sized together.

    one_history.py --bin FOLDER --python PYTHON --r-library FOLDER

It is here and not in the tests of one front because the documentation's tests have all fronts installed.
"""

import argparse
import json
import math
import os
import subprocess
import tempfile
from pathlib import Path

PYTHON = """
from resource_tracker import ResourceTracker
with ResourceTracker(interval=0.05, job="train") as tracker:
    tracker.wait_for_samples(2, timeout=60)
"""
R = """
library(resource.tracker)
tracker <- ResourceTracker$new(interval = 0.05, job = "train")
tracker$wait_for_samples(2, timeout = 60)
tracker$stop()
"""
TABLE_PYTHON = "import json, resource_tracker; print(json.dumps(resource_tracker.history(job='train').to_dict()))"
TABLE_R = """
runs <- resource.tracker::resource_tracker_history(job = "train")
runs$start_time <- as.numeric(runs$start_time)
cat(jsonlite::toJSON(runs, na = "null", digits = NA))
"""


def is_same(left: object, right: object) -> bool:
    """R prints 15 digits."""
    numbers = isinstance(left, float) and isinstance(right, (int, float))
    return math.isclose(left, right, rel_tol=1e-14) if numbers else left == right


def main() -> None:
    parser = argparse.ArgumentParser()
    for name in ("--bin", "--python", "--r-library"):
        parser.add_argument(name, type=lambda path: Path(os.path.abspath(path)), required=True)
    # An option of run.py, which the Makefile passes to both.
    parser.add_argument("--metaflow")
    arguments = parser.parse_args()
    command = str(arguments.bin / "resource-tracker")
    with tempfile.TemporaryDirectory() as home:
        variables = {"HOME": home, "XDG_DATA_HOME": home, "R_LIBS": str(arguments.r_library), "RESOURCE_TRACKER_OFFLINE": "1"}
        environment = {**os.environ, **variables}

        def output(*words: str) -> str:
            done = subprocess.run(words, env=environment, stdout=subprocess.PIPE, text=True, timeout=300)
            assert done.returncode == 0, f"{words}: exit {done.returncode}"
            return done.stdout

        def answer(*words: str) -> dict:
            return json.loads(output(command, *words, "--json"))

        for _ in range(2):
            output(command, "run", "-q", "-i", "0.05", "--job", "train", "--", "sleep", "0.2")
            output(str(arguments.python), "-c", PYTHON)
        output("Rscript", "-e", R)

        runs = answer("list", "--job", "train")["runs"]
        assert [run["status"] for run in runs] == ["finished"] * 5, runs
        assert len({tuple(run) for run in runs}) == 1, "the fronts have other keys"
        assert all(run["memory_peak_bytes"] > 0 and run["duration_seconds"] > 0 for run in runs), runs
        programs = [Path(run["command"][0]).name for run in runs]
        assert programs[0] in ("R", "Rscript") and programs.count("sleep") == 2, programs
        assert sum("python" in program for program in programs) == 2, programs

        of_python, of_r = json.loads(output(str(arguments.python), "-c", TABLE_PYTHON)), json.loads(output("Rscript", "-e", TABLE_R))
        assert [row["id"] for row in of_python] == [row["id"] for row in of_r] == [run["id"] for run in runs]
        for left, right in zip(of_python, of_r):
            assert list(left) == list(right) and len(left) > 25, (left, right)
            different = [(name, left[name], right[name]) for name in left if not is_same(left[name], right[name])]
            assert not different, f"cells of Python and R: {different}"

        comparison = answer("compare", "train", runs[0]["id"])
        job, of_r = comparison["sides"]
        assert (len(job["runs"]), of_r["earlier_runs"], of_r["runs"]) == (4, 4, [runs[0]]), comparison["sides"]
        assert comparison["figures"]["memory_peak_bytes"][1]["interval"]["method"] == "prediction"
        advice = answer("recommend", "train")
        assert advice["runs"] == advice["memory"]["runs"] == 5, advice
        assert advice["memory"]["highest_peak_bytes"] == max(run["memory_peak_bytes"] for run in runs)
    print("one history: two runs of Python, one of R and two of the command")


if __name__ == "__main__":
    main()
