"""The queries of docs/fleet-queries.md on a synthetic fleet: each has rows, and their figures are those of `fleet summary`."""

from __future__ import annotations

import datetime
import json
import math
import re
from pathlib import Path
from typing import NamedTuple

PAGE = Path(__file__).resolve().parents[2] / "docs" / "fleet-queries.md"


class Printed(NamedTuple):
    """What `fleet sql` prints."""

    views: list[str]
    summary: str
    #: The queries by their questions.
    questions: dict[str, str]


def printed(text: str) -> Printed:
    statements = [statement.strip() for statement in text.split(";\n\n")]
    at = next(number for number, statement in enumerate(statements) if statement.startswith("-- The figures of"))
    questions = [statement.rstrip(";\n").split("\n", 1) for statement in statements[at + 1 :]]
    assert len(questions) > 10, questions
    return Printed(statements[:at], statements[at], {title.removeprefix("-- "): query for title, query in questions})


def of_page() -> dict[str, str]:
    """Return the queries of the page by the question above them."""
    found = re.findall(r"^## ([^\n]*)\n(?:(?!```)[\s\S])*?```sql\n([\s\S]*?);\n```$", PAGE.read_text(), re.MULTILINE)
    return dict(found)


def answers_of(connection, query: str) -> list[dict]:  # noqa: ANN001
    result = connection.execute(query)
    names = [column[0] for column in result.description]
    return [dict(zip(names, row)) for row in result.fetchall()]


def check(of_duckdb: Printed, connection, summary) -> None:  # noqa: ANN001
    """Run all queries by DuckDB; `summary` gives the groups of `fleet summary --by`."""
    assert of_page() == of_duckdb.questions, "docs/fleet-queries.md has other queries than `fleet sql`"
    answers = {}
    for question, query in of_duckdb.questions.items():
        answers[question] = answers_of(connection, query)
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


def comparable(rows: list[dict]) -> list[list]:
    """Rows in an order that does not depend on their floating-point numbers, with times in UTC."""

    def plain(value: object) -> object:
        if isinstance(value, datetime.datetime) and value.tzinfo:
            return value.astimezone(datetime.timezone.utc).replace(tzinfo=None)
        if isinstance(value, datetime.date) and not isinstance(value, datetime.datetime):
            return datetime.datetime(value.year, value.month, value.day)
        return value

    # Of several times with the same memory, engines choose any.
    found = [[plain(value) for name, value in row.items() if name != "highest_at"] for row in rows]
    return sorted(found, key=lambda row: [str(value) for value in row if not isinstance(value, float)])


def same_rows(question: str, ours: list[dict], theirs: list[dict]) -> None:
    assert len(ours) == len(theirs) > 0, (question, len(ours), len(theirs))
    for one, other in zip(comparable(ours), comparable(theirs)):
        for left, right in zip(one, other):
            if isinstance(left, float) and isinstance(right, float):
                # Sums may be added up in another order before they are rounded.
                assert math.isclose(left, right, rel_tol=1e-9, abs_tol=1.001e-2), (question, one, other)
            else:
                assert left == right, (question, one, other)


def check_spark(of_spark: Printed, of_duckdb: Printed, session, connection) -> None:  # noqa: ANN001
    """Run the queries in the words of Spark; they give the rows of DuckDB."""
    assert list(of_spark.questions) == list(of_duckdb.questions)
    for question, query in of_spark.questions.items():
        rows = [row.asDict() for row in session.sql(query).collect()]
        same_rows(question, answers_of(connection, of_duckdb.questions[question]), rows)
    print(f"{len(of_spark.questions)} queries of the documentation by Spark", flush=True)


def check_trino(of_trino: Printed, connection) -> None:  # noqa: ANN001
    """Parse the text for Trino, and run its queries by DuckDB in translation."""
    import sqlglot
    from sqlglot import expressions

    tables: dict[str, set[str]] = {}
    for statement in of_trino.views:
        if "CALL system.sync_partition_metadata" in statement:
            continue
        tree = sqlglot.parse_one(statement, dialect="trino")
        assert isinstance(tree, expressions.Create), statement
        if tree.kind == "TABLE":
            tables[tree.this.this.name] = {column.name for column in tree.find_all(expressions.ColumnDef)}
    for view in ["runs", "samples"]:
        columns = {row[0] for row in connection.execute(f"DESCRIBE {view}").fetchall()} - {"copy", "file"}
        assert columns <= tables[f"{view}_files"], columns - tables[f"{view}_files"]
    for question, query in of_trino.questions.items():
        tree = sqlglot.parse_one(query, dialect="trino")
        assert not list(tree.find_all(expressions.Command)), query
        # sqlglot does not know that DuckDB has a function of its own for a key of a JSON object.
        translated = tree.sql(dialect="duckdb")
        same_rows(question, answers_of(connection, of_page()[question]), answers_of(connection, translated))
    sqlglot.parse_one(of_trino.summary, dialect="trino")
    print(f"{len(of_trino.views)} statements and {len(of_trino.questions)} queries for Trino parsed", flush=True)


def rows_of(text: str) -> list[dict]:
    return json.loads(text)["groups"]
