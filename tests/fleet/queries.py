"""The queries of docs/fleet-queries.md on a synthetic fleet: each has rows, and their figures are those of `fleet summary`."""

from __future__ import annotations

import datetime
import json
import math
import re
from pathlib import Path

PAGE = Path(__file__).resolve().parents[2] / "docs" / "fleet-queries.md"
#: What other engines write in another way.
OF_DUCKDB = ["json_extract_string", "epoch(", '"user"']


def queries() -> dict[str, str]:
    """Return the queries of the page by the question above them."""
    found: dict[str, str] = {}
    question = ""
    for heading, code in re.findall(r"^## ([^\n]*)$|^```sql\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL):
        question = heading or question + ("" if question not in found else " (samples)")
        if code:
            assert question not in found, question
            found[question] = code.strip().rstrip(";")
    assert len(found) >= 11, list(found)
    return found


def check(connection, summary) -> None:  # noqa: ANN001
    """Run all queries by DuckDB; `summary` gives the groups of `fleet summary --by`."""
    answers = {}
    for question, query in queries().items():
        result = connection.execute(query)
        names = [column[0] for column in result.description]
        answers[question] = [dict(zip(names, row)) for row in result.fetchall()]
        assert answers[question], f"no rows: {question}"
    of = iter(answers.values())
    resize, gpus, nodes, memory, programs, weeks, teams, disk, growth, idle, samples = of

    def same(one: float | None, other: float | None, what: object) -> None:
        assert (one is None) == (other is None) and (one is None or math.isclose(one, other, rel_tol=1e-9)), (what, one, other)

    jobs = {line["key"]: line for line in summary("job")}
    for row, line in zip(resize, jobs.values()):
        assert row["job"] == line["key"] and row["runs"] == line["recordings"], (row, line)
        same(row["saved_usd"], line["savings_usd"] or 0.0, row)
        assert row["advice_cpus"] is not None and row["asked_gib"] > 0, row
    for row, line in zip(sorted(teams, key=lambda row: row["team"] or ""), sorted(summary("tag:team"), key=lambda line: line["key"] or "")):
        assert (row["team"], row["recordings"]) == (line["key"], line["recordings"]), (row, line)
        same(row["cost_usd"], line["cost_usd"], row)
    by_job: dict[str, list[float]] = {}
    for row in programs:
        by_job.setdefault(row["job"], []).append(row["imbalance"])
        assert row["recordings"] > 1 and row["nodes"] >= 1, row
    for job, found in by_job.items():
        same(sum(found) / len(found), jobs[job]["imbalance"], job)
    recordings = sum(line["recordings"] for line in jobs.values())
    assert sum(row["recordings"] for row in weeks) == recordings
    assert all(isinstance(row["week"], datetime.date) for row in weeks)
    by_node = {line["key"]: line for line in summary("node")}
    assert all(row["recordings"] == by_node[row["node"]]["recordings"] for row in nodes)
    assert all(0 <= row["wasted_percent"] <= 100 for row in gpus)
    assert all(row["highest_percent"] >= row["mean_percent"] for row in memory)
    assert all(row["percent_of_time"] > 24 for row in disk) and len(disk) < len(jobs)
    assert all(row["mib_a_day"] >= 0 for row in growth)
    assert all(row["gpu_mean_gpus"] < row["asked_gpus"] for row in idle)
    assert all(row["highest_mib"] > 0 for row in samples)
    print(f"{len(answers)} queries of the documentation: rows {[len(rows) for rows in answers.values()]}", flush=True)


def check_spark(session, connection) -> None:  # noqa: ANN001
    """Run the queries that are the same in Spark there too; both have the same number of rows."""
    shared = {question: query for question, query in queries().items() if not any(word in query for word in OF_DUCKDB)}
    assert len(shared) >= 6, list(shared)
    for question, query in shared.items():
        ours, theirs = len(connection.execute(query).fetchall()), len(session.sql(query).collect())
        assert ours == theirs, (question, ours, theirs)
    print(f"{len(shared)} queries of the documentation by Spark", flush=True)


def rows_of(text: str) -> list[dict]:
    return json.loads(text)["groups"]
