#!/usr/bin/env python3
"""Live telemetry: what real receivers get, and what receivers that fail cost the job.

    tests/fleet/telemetry.py --tracker PROGRAM

OTLP requests are decoded with the published definitions (`opentelemetry-proto`), names and units compared with
`opentelemetry-semantic-conventions`, the textfile is parsed by `prometheus_client`. Prometheus and the Pushgateway are those of
Debian, on free ports of loopback with their data in a temporary folder.
"""

from __future__ import annotations

import argparse
import gzip
import http.server
import importlib
import json
import os
import socket
import socketserver
import ssl
import subprocess
import sys
import tempfile
import threading
import time
import urllib.parse
import urllib.request
from contextlib import contextmanager
from pathlib import Path

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest, ExportMetricsServiceResponse
from opentelemetry.proto.metrics.v1.metrics_pb2 import AggregationTemporality
from prometheus_client.parser import text_string_to_metric_families

#: Half a second of CPU time, 50 MiB of memory and 3 MB of writes; ends with status 3.
JOB = """
import os, sys, time
block = bytearray(os.urandom(1 << 20)) * 50
with open(os.path.join(os.environ["HOME"], "out"), "wb") as out:
    out.write(os.urandom(3_000_000)); out.flush(); os.fsync(out.fileno())
while time.process_time() < 0.5: pass
time.sleep(0.7)
sys.exit(3)
"""
IDENTITY = {
    "USER": "ada", "SLURM_JOB_ID": "42", "SLURM_STEP_ID": "0", "SLURM_PROCID": "1", "SLURM_NTASKS": "4", "SLURM_NNODES": "2",
    "SLURMD_NODENAME": "n17", "SLURM_CLUSTER_NAME": "blue", "POD_NAME": "pod-a", "RESOURCE_TRACKER_IMAGE": "img:1",
    "RESOURCE_TRACKER_ASKED_CPUS": "4",
}
TRACKER = ""


class Receiver(http.server.BaseHTTPRequestHandler):
    """Keeps all requests; answers with the status of its server."""

    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.requests.append((time.time(), self.command, self.path, {key.lower(): value for key, value in self.headers.items()}, body))
        status = self.server.statuses.pop(0) if self.server.statuses else self.server.status
        if status == "hang":
            time.sleep(60)
        self.send_response(status)
        for name, value in {"Content-Length": str(len(self.server.answer)), **self.server.headers}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(self.server.answer)

    do_PUT = do_POST

    def log_message(self, *_: object) -> None:
        pass


class Server(socketserver.ThreadingMixIn, http.server.HTTPServer):
    daemon_threads = True


@contextmanager
def receiver(status: int | str = 200, statuses: tuple = (), answer: bytes = b"", headers: dict | None = None):
    server = Server(("127.0.0.1", 0), Receiver)
    server.answer, server.headers = answer, headers or {}
    server.requests, server.status, server.statuses = [], status, list(statuses)
    server.url = f"http://127.0.0.1:{server.server_port}"
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()


def track(home: str, options: list[str], command: list[str], variables: dict[str, str] | None = None):
    """Run a command; return the process, the duration and the recording."""
    kept = {key: value for key, value in os.environ.items() if key in ("PATH", "LANG", "TMPDIR")}
    environment = {**kept, "HOME": home, "XDG_DATA_HOME": home + "/data", **(variables or {})}
    began = time.monotonic()
    recording = os.path.join(home, "run.json.gz")
    done = subprocess.run(
        [TRACKER, "run", "--force", "-o", recording, *options, "--", *command],
        env=environment, capture_output=True, text=True, timeout=50,
    )
    seconds = time.monotonic() - began
    loaded = json.loads(gzip.open(recording).read())
    for table in ["process_metrics", "extra_metrics"]:
        rows = loaded[table]
        loaded[table] = {name: [row[name] for row in rows] for name in rows[0]}
    return done, seconds, loaded


def wait_for(what, seconds: float = 15):
    """The first answer of `what` that is true."""
    ends = time.monotonic() + seconds
    while True:
        answer = what()
        if answer or time.monotonic() > ends:
            assert answer, what
            return answer
        time.sleep(0.05)


def conventions() -> tuple[dict, set, str]:
    """Unit and instrument of each metric, and the attributes, of the published conventions."""
    from opentelemetry.semconv import schemas

    metrics, attributes = {}, set()
    for module in ["process", "system", "hw"]:
        module = importlib.import_module(f"opentelemetry.semconv._incubating.metrics.{module}_metrics")
        lines = Path(module.__file__).read_text().splitlines()
        for number, line in enumerate(lines):
            if ": Final = " in line:
                rest = lines[number : number + 8]
                fact = lambda key: next((line.split(": ")[1] for line in rest if line.startswith(key)), None)  # noqa: E731
                metrics[line.split('"')[1]] = (fact("Unit"), fact("Instrument"))
    folder = Path(importlib.import_module("opentelemetry.semconv._incubating.attributes").__path__[0])
    for file in folder.glob("*_attributes.py"):
        attributes |= {line.split('"')[1] for line in file.read_text().splitlines() if ': Final = "' in line}
    from opentelemetry.semconv.attributes import service_attributes

    attributes |= {service_attributes.SERVICE_NAME, "service.instance.id", "deployment.environment.name"}
    return metrics, attributes, [schema.value for schema in schemas.Schemas][-1]


def value_of(any_value):
    return getattr(any_value, any_value.WhichOneof("value"))


def attributes_of(pairs) -> dict:
    found = {pair.key: value_of(pair.value) for pair in pairs}
    assert len(found) == len(pairs), "an attribute is there twice"
    return found


def decoded(server) -> list:
    requests = []
    for _, method, path, headers, body in server.requests:
        assert (method, path) == ("POST", "/v1/metrics"), (method, path)
        if "content-encoding" in headers:
            assert headers["content-encoding"] == "gzip"
            body = gzip.decompress(body)
        assert headers["content-type"] == "application/x-protobuf"
        assert headers["user-agent"].startswith("resource-tracker/")
        requests.append(ExportMetricsServiceRequest.FromString(body))
    return requests


def otlp(home: str) -> None:
    known, known_attributes, schema = conventions()
    with receiver(statuses=(503,)) as server:
        # The endpoint comes from the variables, the first request is repeated.
        variables = {
            **IDENTITY, "OTEL_EXPORTER_OTLP_ENDPOINT": server.url, "OTEL_EXPORTER_OTLP_HEADERS": "x-tenant=team%20a",
            "OTEL_RESOURCE_ATTRIBUTES": "deployment.environment.name=ci", "API_TOKEN": "hidden",
        }
        options = ["-i", "0.25", "--job", "train", "--tag", "team=vision", "--otlp"]
        command = [sys.executable, "-c", JOB, "--token", "secret1"]
        done, _, recording = track(home, options, command, variables)
        requests = decoded(server)
    assert done.returncode == 3, done
    assert "OTLP" not in done.stderr and "rows" not in done.stderr, done.stderr
    assert server.requests[0][3]["x-tenant"] == "team a"
    process = recording["process_metrics"]
    rows = len(process["timestamp"])
    assert rows >= 4, rows
    resources = {str(request.resource_metrics[0].resource) for request in requests}
    assert len(resources) == 1, "all requests have one resource"
    resource = attributes_of(requests[-1].resource_metrics[0].resource.attributes)
    run = recording["run"]
    expected = {
        "service.name": "train", "service.instance.id": run["id"], "resource_tracker.run_id": run["id"],
        "host.name": run["host"], "process.pid": recording["metadata"]["pid"], "user.name": "ada",
        "k8s.pod.name": "pod-a", "k8s.node.name": "n17", "container.image.name": "img:1",
        "resource_tracker.cluster": "blue", "resource_tracker.scheduler": "slurm", "resource_tracker.scheduler_job": "42",
        "resource_tracker.rank": 1, "resource_tracker.ranks": 4, "resource_tracker.local_ranks": 2, "resource_tracker.asked_cpus": 2.0,
        "resource_tracker.tag.team": "vision", "deployment.environment.name": "ci",
        "process.command_line": " ".join(run["command"]),
    }
    for key, value in expected.items():
        assert resource.get(key) == value, (key, resource.get(key), value)
    assert "secret1" not in str(resource) and "hidden" not in str(resource) and "***" in resource["process.command_line"]
    series: dict[tuple, dict[int, float]] = {}
    starts, seen = set(), set()
    for request in requests:
        assert request.resource_metrics[0].schema_url == schema, request.resource_metrics[0].schema_url
        scope, = request.resource_metrics[0].scope_metrics
        names = [metric.name for metric in scope.metrics]
        assert len(names) == len(set(names)) and scope.scope.name == "resource-tracker"
        for metric in scope.metrics:
            kind = metric.WhichOneof("data")
            data = getattr(metric, kind)
            instrument = "gauge" if kind == "gauge" else "counter" if data.is_monotonic else "updowncounter"
            if kind == "sum":
                assert data.aggregation_temporality == AggregationTemporality.AGGREGATION_TEMPORALITY_CUMULATIVE
            if metric.name.startswith("resource_tracker."):
                assert metric.unit in ("s", "By", "1", "W", "Cel", "Hz") and metric.description, metric.name
            else:
                assert known[metric.name] == (metric.unit, instrument), (metric.name, metric.unit, instrument)
                seen.add(metric.name)
            for point in data.data_points:
                attributes = attributes_of(point.attributes)
                for key in attributes:
                    assert key in known_attributes or key.startswith("resource_tracker."), key
                starts.add(point.start_time_unix_nano)
                key = (metric.name, *sorted(attributes.items()))
                series.setdefault(key, {})[point.time_unix_nano] = point.as_double
    for key in resource:
        assert key in known_attributes or key.startswith("resource_tracker."), key
    assert seen >= {
        "process.cpu.time", "process.memory.usage", "process.disk.io", "process.thread.count", "process.paging.faults",
        "system.cpu.time", "system.memory.usage", "system.disk.io", "system.network.io", "system.filesystem.usage",
    }, seen
    assert len(starts) == 1 and abs(starts.pop() / 1e9 - recording["metadata"]["start_time"]) < 0.01
    # The first request failed: its point came again with a later one, so that no row is missing.
    cpu = series["process.cpu.time", ("cpu.mode", "user")]
    assert [round(at / 1e9, 3) for at in sorted(cpu)] == [round(at, 3) for at in process["timestamp"]]
    last = lambda *key: series[key][max(series[key])]  # noqa: E731
    close = lambda one, other: abs(one - other) <= 1e-6 * max(1.0, abs(other))  # noqa: E731
    assert close(last("process.cpu.time", ("cpu.mode", "user")), sum(process["utime"]))
    assert close(last("process.cpu.time", ("cpu.mode", "system")), sum(process["stime"]))
    assert close(last("process.disk.io", ("disk.io.direction", "write")), sum(process["write_bytes"]))
    assert sum(process["write_bytes"]) >= 3_000_000
    peak = max(series[("process.memory.usage",)].values())
    assert peak == max(process["memory"]) * 1024 and peak > 50 << 20, peak
    infos = sorted((at, key) for key, points in series.items() if key[0] == "resource_tracker.run.info" for at in points)
    assert infos[-1][1][1:] == (("process.exit.code", 3), ("resource_tracker.status", "failed")), infos[-1]
    assert any(("resource_tracker.status", "running") in key for _, key in infos)
    print(f"OTLP: {len(requests)} requests, {rows} rows, {len(series)} series, {len(seen)} names of the conventions")

    with receiver() as server, receiver() as other:
        variables = {"OTEL_EXPORTER_OTLP_ENDPOINT": other.url}
        track(home, [], ["true"], variables)
        assert other.requests == [], "a variable alone switches nothing on"
        track(home, ["--otlp", server.url], ["true"], variables)
        assert server.requests and other.requests == [], "the option replaces the variable"
        sent = len(server.requests)
        done, _, _ = track(home, ["--otlp"], ["true"], {**variables, "OTEL_SDK_DISABLED": "true"})
        assert other.requests == [] and "OTEL_SDK_DISABLED" in done.stderr, done.stderr
        file = os.path.join(home, "offline.prom")
        options = ["--offline", "--otlp", server.url, "--pushgateway", server.url, "--prometheus", file]
        done, _, recording = track(home, options, ["true"])
        assert len(server.requests) == sent, "--offline switches it off"
        assert len([note for note in recording["run"]["notes"] if "--offline" in note]) == 2, recording["run"]["notes"]
        assert 'status="finished"' in Path(file).read_text()
        # A project's file is ignored, the user's file counts.
        Path(home, "resource-tracker.toml").write_text(f"otlp = '{server.url}'\npushgateway = '{server.url}'\n")
        here = os.getcwd()
        os.chdir(home)
        try:
            done, _, _ = track(home, [], ["true"])
        finally:
            os.chdir(here)
            Path(home, "resource-tracker.toml").unlink()
        assert len(server.requests) == sent and done.stderr.count("is ignored") == 2, done.stderr
        settings = Path(home, ".config/resource-tracker/config.toml")
        settings.parent.mkdir(parents=True)
        settings.write_text(f"otlp = '{server.url}'\n")
        track(home, [], ["true"])
        settings.unlink()
        assert len(server.requests) > sent
    print("OTLP: variables, --offline and settings files")


def variables_of_otlp(home: str) -> None:
    """Standard variables: addresses as they are, compression, certificates, protocols; what the receiver answers."""

    def notes(recording: dict) -> list[str]:
        return [note for note in recording["run"].get("notes", []) if "OTLP" in note or "refused" in note]

    job = ["sleep", "0.4"]
    with receiver() as server:
        variables = {
            "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT": server.url + "/in/?key=secret9", "OTEL_EXPORTER_OTLP_COMPRESSION": "gzip",
        }
        done, _, recording = track(home, ["-i", "0.1", "--otlp"], job, variables)
        assert {request[2] for request in server.requests} == {"/in/?key=secret9"}
        assert {request[3]["content-encoding"] for request in server.requests} == {"gzip"}
        last = ExportMetricsServiceRequest.FromString(gzip.decompress(server.requests[-1][4]))
        assert "finished" in str(last) and not notes(recording), recording["run"]["notes"]
        for protocol in ["grpc", "http/json"]:
            sent = len(server.requests)
            done, _, recording = track(home, ["--otlp"], job, {**variables, "OTEL_EXPORTER_OTLP_PROTOCOL": protocol})
            (note,) = notes(recording)
            assert len(server.requests) == sent and protocol in note, note
            assert "OTEL_EXPORTER_OTLP_PROTOCOL" in note and "http/protobuf" in note and "4318" in note, note
    answer = ExportMetricsServiceResponse(partial_success={"rejected_data_points": 3, "error_message": "too old"})
    with receiver(answer=answer.SerializeToString()) as server:
        done, _, recording = track(home, ["-i", "0.2", "--otlp", server.url + "/v1/metrics/"], job)
        assert {request[2] for request in server.requests} == {"/v1/metrics/"}
        (note,) = notes(recording)
        assert f"{3 * len(server.requests)} data points were refused" in note and "too old" in note, note
    with receiver(statuses=(429,), headers={"Retry-After": "3"}) as server:
        done, _, recording = track(home, ["-i", "0.2", "--otlp", server.url], ["sleep", "2.2"])
        # By itself the pause is one second. The end does not wait.
        assert len(server.requests) == 2 and not notes(recording), (len(server.requests), recording["run"]["notes"])
    closed = f"http://127.0.0.1:{free_port()}"
    done, _, recording = track(home, ["--otlp"], ["true"], {"OTEL_EXPORTER_OTLP_METRICS_ENDPOINT": closed + "/?key=secret9"})
    assert "secret9" not in json.dumps(recording["run"]["notes"]) and closed in json.dumps(recording["run"]["notes"])
    certificate(home, job)
    print("OTLP: addresses, gzip, certificate, protocols, partial success and Retry-After")


def certificate(home: str, job: list[str]) -> None:
    """A receiver whose certificate only the file of the variable knows."""
    key, pem = os.path.join(home, "key.pem"), os.path.join(home, "cert.pem")
    subject = ["-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1", "-addext", "basicConstraints=critical,CA:FALSE"]
    make = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-keyout", key, "-out", pem, *subject]
    subprocess.run(make, check=True, capture_output=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pem, key)
    with receiver() as server:
        server.socket = context.wrap_socket(server.socket, server_side=True)
        url = server.url.replace("http://", "https://")
        done, _, recording = track(home, ["--otlp", url], job)
        assert not server.requests and url in json.dumps(recording["run"]["notes"]), recording["run"]
        done, _, recording = track(home, ["--otlp", url], job, {"OTEL_EXPORTER_OTLP_CERTIFICATE": pem})
        assert len(decoded(server)) >= 1 and "notes" not in recording["run"], recording["run"]


def beside_a_hung_receiver(home: str) -> None:
    """OTLP has all rows and the end, though the Pushgateway never answers."""
    with receiver("hang") as hanging, receiver() as works:
        options = ["-i", "0.2", "--pushgateway", hanging.url, "--otlp", works.url]
        done, _, recording = track(home, options, ["sh", "-c", "sleep 1.5; exit 3"])
        requests = decoded(works)
    assert done.returncode == 3 and hanging.requests
    notes = [note for note in recording["run"]["notes"] if "did not reach" in note]
    assert len(notes) == 1 and hanging.url in notes[0], notes
    times, statuses = set(), set()
    for request in requests:
        for metric in request.resource_metrics[0].scope_metrics[0].metrics:
            points = getattr(metric, metric.WhichOneof("data")).data_points
            if metric.name == "process.memory.usage":
                times |= {round(point.time_unix_nano / 1e9, 3) for point in points}
            if metric.name == "resource_tracker.run.info":
                statuses |= {attributes_of(point.attributes)["resource_tracker.status"] for point in points}
    process = recording["process_metrics"]
    measured = {round(at, 3) for at, memory in zip(process["timestamp"], process["memory"]) if memory is not None}
    assert times == measured and statuses == {"running", "failed"}, (times ^ measured, statuses)
    print(f"beside a Pushgateway that hangs: OTLP has {len(times)} rows and the end")


def textfile(home: str) -> None:
    path = os.path.join(home, "run.prom")
    versions, problems = set(), []
    is_over = threading.Event()

    def watch() -> None:
        """Parse the file again and again: it is never there in part."""
        while not is_over.is_set():
            try:
                text = Path(path).read_text()
            except FileNotFoundError:
                continue
            families = list(text_string_to_metric_families(text))
            if not families or families[-1].name != "resource_tracker_run_info":
                problems.append(text)
            versions.add(text)

    watcher = threading.Thread(target=watch)
    watcher.start()
    done, _, recording = track(
        home, ["-i", "0.1", "--job", 'a "b"', "--prometheus", path], [sys.executable, "-c", JOB], IDENTITY
    )
    is_over.set()
    watcher.join()
    assert done.returncode == 3 and not problems, (done, problems[:1])
    assert len(versions) >= 5, len(versions)
    families = {family.name: family for family in text_string_to_metric_families(Path(path).read_text())}
    process = recording["process_metrics"]
    one = lambda name: families[name].samples[0]  # noqa: E731
    cpu = one("resource_tracker_process_utime_seconds")
    assert families["resource_tracker_process_utime_seconds"].type == "counter"
    assert abs(cpu.value - sum(process["utime"])) < 1e-6 and cpu.name.endswith("_total")
    labels = {"job": 'a "b"', "run": recording["run"]["id"], "user": "ada", "rank": "1", "scheduler_job": "42"}
    assert labels.items() <= cpu.labels.items(), cpu.labels
    memory = one("resource_tracker_process_memory_bytes")
    assert memory.value == process["memory"][-1] * 1024 or process["memory"][-1] == 0
    info = one("resource_tracker_run_info")
    assert info.labels["status"] == "failed" and info.labels["image"] == "img:1"
    assert one("resource_tracker_run_exit_code").value == 3
    start, end = one("resource_tracker_run_start_time_seconds").value, one("resource_tracker_run_end_time_seconds").value
    assert abs(start - recording["metadata"]["start_time"]) < 0.01 and 0 < end - start < 30
    assert all(family.documentation for family in families.values())
    assert not [sample for family in families.values() for sample in family.samples if sample.timestamp]
    foreign = os.path.join(home, "foreign.prom")
    Path(foreign).write_text("up 1\n")
    refused = subprocess.run([TRACKER, "run", "--prometheus", foreign, "--", "true"], capture_output=True, text=True)
    assert refused.returncode == 125 and Path(foreign).read_text() == "up 1\n", refused
    print(f"textfile: {len(families)} families, {len(versions)} versions, each complete")


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@contextmanager
def service(name: str, arguments: list[str], port: int):
    """A program of Debian on a port of loopback, until it answers."""
    with tempfile.TemporaryFile() as log:
        process = subprocess.Popen([name, *arguments], stdout=log, stderr=log)
        try:
            def is_ready() -> bool:
                assert process.poll() is None, (log.seek(0), log.read())
                try:
                    return get(f"http://127.0.0.1:{port}/-/ready") is not None
                except OSError:
                    return False

            wait_for(is_ready)
            yield
        finally:
            process.terminate()
            process.wait(10)


def get(url: str) -> bytes:
    with urllib.request.urlopen(url, timeout=5) as answer:
        return answer.read()


def real_receivers(home: str) -> None:
    gateway, prometheus = free_port(), free_port()
    config = Path(home, "prometheus.yml")
    config.write_text(
        "global: {scrape_interval: 100ms, scrape_timeout: 100ms}\nscrape_configs:\n"
        f"- {{job_name: gateway, honor_labels: true, static_configs: [{{targets: ['127.0.0.1:{gateway}']}}]}}\n"
    )
    with (
        service("prometheus-pushgateway", [f"--web.listen-address=127.0.0.1:{gateway}", f"--persistence.file={home}/gateway"], gateway),
        service(
            "prometheus",
            [f"--config.file={config}", f"--storage.tsdb.path={home}/tsdb", f"--web.listen-address=127.0.0.1:{prometheus}"],
            prometheus,
        ),
    ):
        def query(text: str) -> list:
            url = f"http://127.0.0.1:{prometheus}/api/v1/query?" + urllib.parse.urlencode({"query": text})
            answer = json.loads(get(url))
            assert answer["status"] == "success", answer
            return answer["data"]["result"]

        options = ["-i", "0.25", "--job", "team/train", "--pushgateway", f"http://127.0.0.1:{gateway}"]
        done, _, recording = track(home, options, [sys.executable, "-c", JOB], IDENTITY)
        assert done.returncode == 3 and "127.0.0.1" not in done.stderr, done.stderr
        groups = json.loads(get(f"http://127.0.0.1:{gateway}/api/v1/metrics"))["data"]
        run = recording["run"]
        assert [group["labels"] for group in groups] == [{"job": "team/train", "instance": run["host"], "rank": "1"}], [run["host"], *(group["labels"] for group in groups)]
        assert groups[0]["last_push_successful"]
        found = wait_for(lambda: query('resource_tracker_run_info{status="failed"}'))
        labels = {"job": "team/train", "instance": run["host"], "run": run["id"], "user": "ada", "rank": "1"}
        assert labels.items() <= found[0]["metric"].items(), found
        value = lambda name: float(query(name)[0]["value"][1])  # noqa: E731
        process = recording["process_metrics"]
        assert abs(value("resource_tracker_process_utime_seconds_total") - sum(process["utime"])) < 1e-6
        assert value("resource_tracker_process_write_bytes_total") == sum(process["write_bytes"])
        assert value("resource_tracker_run_exit_code") == 3
        seen = query('max_over_time(resource_tracker_process_memory_bytes[1m])')
        assert float(seen[0]["value"][1]) in {kib * 1024 for kib in process["memory"]}, (seen, process["memory"])
        meta = json.loads(get(f"http://127.0.0.1:{prometheus}/api/v1/metadata?metric=resource_tracker_process_memory_bytes"))
        assert meta["data"]["resource_tracker_process_memory_bytes"][0]["type"] == "gauge", meta
        count = len(query('{__name__=~"resource_tracker_.*"}'))
    print(f"Pushgateway and Prometheus of Debian: {count} series of one run")


def failing_receivers(home: str) -> None:
    """Status and duration of the job, and its ticks, beside a run without telemetry."""
    command = [sys.executable, "-c", "import sys, time; time.sleep(1.2); sys.exit(5)"]

    def measured(options: list[str]) -> tuple[float, float, float, list[str]]:
        done, whole, recording = track(home, ["-i", "0.2", *options], command)
        assert done.returncode == 5, done
        elapsed = recording["extra_metrics"]["elapsed"]
        # Rows between the first and the last are on a grid; a missed tick makes a row longer.
        late = max(abs(one - 0.2) for one in elapsed[1:-1])
        return whole, recording["metadata"]["duration"], late, recording["run"].get("notes", [])

    closed = f"http://127.0.0.1:{free_port()}"
    plain, plain_job, plain_late, _ = min(measured([]) for _ in range(3))
    print(f"no receiver: {plain:.2f} s, job {plain_job:.2f} s, latest tick {plain_late * 1000:.1f} ms")
    with receiver(500) as broken, receiver("hang") as hanging, receiver() as works:
        cases = [("works", works.url), ("refuses", closed), ("answers 500", broken.url), ("hangs", hanging.url)]
        for name, url in cases:
            # Other programs delay a run too: one undisturbed run of five shows that the receiver does not.
            for _ in range(5):
                whole, job, late, notes = measured(["--otlp", url, "--pushgateway", url])
                print(f"{name}: {whole:.2f} s, job {job:.2f} s, latest tick {late * 1000:.1f} ms; {notes}")
                of_receivers = [note for note in notes if "did not reach" in note]
                assert len(of_receivers) == (0 if name == "works" else 2), notes
                most = plain + (1.1 if name == "hangs" else 0.3)
                if job < plain_job + 0.15 and late < plain_late + 0.03 and whole < most:
                    break
            else:
                raise AssertionError(f"{name}: the job or its ticks are late")
    # While a receiver hangs, the file still gets its last values.
        path = os.path.join(home, "beside.prom")
        measured(["--otlp", hanging.url, "--prometheus", path])
        assert 'status="failed"' in Path(path).read_text()
    missing = os.path.join(home, "gone")
    os.mkdir(missing)
    command_that_removes = ["sh", "-c", f"rm -r {missing}; exit 4"]
    done, _, recording = track(home, ["--prometheus", missing + "/a.prom"], command_that_removes)
    assert done.returncode == 4 and any("cannot write" in note for note in recording["run"]["notes"]), recording["run"]


def main() -> int:
    global TRACKER
    parser = argparse.ArgumentParser()
    parser.add_argument("--tracker", required=True)
    TRACKER = os.path.abspath(parser.parse_args().tracker)
    for case in [otlp, variables_of_otlp, beside_a_hung_receiver, textfile, real_receivers, failing_receivers]:
        with tempfile.TemporaryDirectory() as home:
            case(home)
    return 0


if __name__ == "__main__":
    sys.exit(main())
