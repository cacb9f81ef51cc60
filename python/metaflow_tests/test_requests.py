"""Requests of `recommend --for`, each read by its own tool.

Nextflow is not among the packages of Debian and PyPI: its text is read by rules of Groovy and of regular expressions.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import textwrap
from pathlib import Path

import conftest
import pytest
import yaml
from botocore.session import Session
from botocore.validate import ParamValidator

TRACKER = Path(sys.executable).with_name("resource-tracker")
#: Quotes, a backslash, special characters of shells and regular expressions, a control character.
HOSTILE_NAME = 'it\'s a "x" \\ ${y} (#1|*) [z]!\n\u202e é'
SLURM_CONF = """
ClusterName=none
SlurmctldHost=localhost(127.0.0.1)
PluginDir={plugins}
AuthType=auth/none
CredType=cred/none
SelectType=select/cons_tres
MessageTimeout=1
NodeName=n
PartitionName=p Nodes=n
"""
#: https://kubernetes.io/docs/reference/kubernetes-api/common-definitions/quantity/
QUANTITY = re.compile(r"[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)((Ki|Mi|Gi|Ti|Pi|Ei)|[mkMGTPE]|[eE][+-]?[0-9]+)?")


@pytest.fixture(params=[0, 2])
def gpus(request) -> int:
    return request.param


@pytest.fixture
def recording(gpus: int, tmp_path: Path) -> Path:
    """A run of 60 s with 4 CPUs and a peak of 2.5 GB, for which 3072 MiB are recommended."""
    process = {"pid": 1, "children": 0, "utime": 4.0, "stime": 0.0, "cpu_usage": 4.0, "memory": 2_500_000}
    process |= {"read_bytes": 0, "write_bytes": 0, "gpu_usage": gpus, "gpu_vram": 100.0 * gpus, "gpu_utilized": gpus}
    path = tmp_path / "recording.json"
    switches = ["children", "autostart", "track_processes", "discover_server", "discover_cloud"]
    times = {"interval": 1.0, "start_time": 1e9, "stop_time": 1e9 + 60, "duration": 60.0}
    software = {"version": "0.1.0", "implementation": "procfs"}
    metadata = {"version": 1, "resource_tracker": software, "pid": 1, "method": None, "track_system": False, **times}
    snapshot = {
        "metadata": {**metadata, **dict.fromkeys(switches, True)},
        "server_info": None,
        "cloud_info": None,
        "process_metrics": [{"timestamp": 1e9 + 1 + second, **process} for second in range(60)],
        "system_metrics": [],
        "run": {"job": HOSTILE_NAME, "status": "finished", "exit_code": 0},
    }
    path.write_text(json.dumps(snapshot))
    return path


@pytest.fixture
def request_for(recording: Path):
    def text(system: str) -> str:
        line = [TRACKER, "recommend", recording, "--offline"]
        done = subprocess.run([*line, "--for", system], capture_output=True, text=True, check=True)
        requests = json.loads(subprocess.check_output([*line, "--json"]))["requests"]
        assert requests[system.replace("-", "_")] + "\n" == done.stdout
        return done.stdout

    return text


def test_metaflow_accepts_the_decorator(request_for, gpus: int, tmp_path: Path) -> None:
    decorator = request_for("metaflow").strip()
    flow = """
        from metaflow import FlowSpec, resources, step
        class SizedFlow(FlowSpec):
            DECORATOR
            @step
            def start(self):
                self.next(self.end)
            @step
            def end(self):
                pass
        if __name__ == "__main__":
            SizedFlow()
    """
    (tmp_path / "sized.py").write_text(textwrap.dedent(flow).replace("DECORATOR", decorator))
    done = conftest.command("sized", "check", program=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    names: dict = {}
    exec(f"from metaflow import resources, step\n{decorator}\n@step\ndef start(self): pass", names)
    found = {name: value for name, value in names["start"].decorators[0].attributes.items() if value is not None}
    assert (found["cpu"], found["memory"], found.get("gpu", 0)) == (4, 3072, gpus)


def test_slurm_reads_the_directives(request_for, gpus: int, tmp_path: Path) -> None:
    root = Path(os.environ["SLURM_ROOT"])
    libraries = next(root.glob("usr/lib/*/slurm-wlm"))
    (tmp_path / "slurm.conf").write_text(SLURM_CONF.format(plugins=libraries))
    script = tmp_path / "job.sh"
    script.write_text(f"#!/bin/sh\n{request_for('slurm')}true\n")
    # The options are printed before the controller is asked, which does not exist.
    environment = {"SLURM_CONF": str(tmp_path / "slurm.conf"), "LD_LIBRARY_PATH": f"{libraries}:{libraries.parent}"}
    line = [root / "usr/bin/sbatch", "--verbose", "--test-only", script]
    done = subprocess.run(line, env=environment, capture_output=True, text=True, timeout=60)
    options = dict(re.findall(r"^sbatch: (\S+) +: (\S+)$", done.stderr, re.M))
    found = options.get("cpus-per-task"), options.get("mem"), options.get("gpus", "0")
    assert found == ("4", "3G", str(gpus)), done.stderr


def test_kubernetes_resources_are_yaml_with_quantities(request_for, gpus: int) -> None:
    container = "containers:\n- name: job\n" + textwrap.indent(request_for("kubernetes"), "  ")
    resources = yaml.safe_load(container)["containers"][0]["resources"]
    gpu = {"nvidia.com/gpu": gpus} if gpus else {}
    assert resources == {"requests": {"cpu": "4", "memory": "3072Mi"}, "limits": {"memory": "3072Mi", **gpu}}
    quantities = [str(value) for part in resources.values() for value in part.values()]
    assert all(QUANTITY.fullmatch(quantity) for quantity in quantities)


def test_nextflow_selector_matches_the_name_only(request_for, gpus: int) -> None:
    text = request_for("nextflow")
    accelerator = f"        accelerator = {gpus}\n" if gpus else ""
    form = r"process \{\n    withName: '((?:[^'\\\n]|\\.)*)' \{\n((?:        .*\n)+)    \}\n\}\n"
    selector, settings = re.fullmatch(form, text).groups()
    assert settings == f"        cpus = 4\n        memory = '3072 MB'\n{accelerator}"
    pattern = re.sub(r"\\(.)", r"\1", selector)
    # A character by its number, as Java writes it.
    pattern = re.sub(r"\\x\{(\w+)\}", lambda number: re.escape(chr(int(number[1], 16))), pattern)
    assert re.fullmatch(pattern, HOSTILE_NAME) and not re.fullmatch(pattern, HOSTILE_NAME.replace("*", "1"))


def test_snakemake_plans_the_job_with_the_resources(request_for, gpus: int, tmp_path: Path) -> None:
    directives = textwrap.indent(request_for("snakemake"), "    ")
    gpu = " {resources.gpu}" if gpus else ""
    rule = f'rule sized:\n{directives}    shell: "got {{threads}} {{resources.mem_mb}}{gpu}."\n'
    (tmp_path / "Snakefile").write_text(rule)
    line = [sys.executable, "-m", "snakemake", "--dry-run", "--printshellcmds", "--cores", "8"]
    done = subprocess.run(line, capture_output=True, text=True, cwd=tmp_path, timeout=120)
    assert f"got 4 3072{f' {gpus}' if gpus else ''}." in done.stdout + done.stderr, done.stdout + done.stderr


def test_aws_batch_accepts_the_requirements(request_for, gpus: int) -> None:
    requirements = json.loads(request_for("aws-batch"))
    container = {"image": "job", **requirements}
    definition = {"jobDefinitionName": "job", "type": "container", "containerProperties": container}
    shape = Session().get_service_model("batch").operation_model("RegisterJobDefinition").input_shape
    assert ParamValidator().validate(definition, shape).generate_report() == ""
    # The validator does not check enumerations.
    known = shape.members["containerProperties"].members["resourceRequirements"].member.members["type"].enum
    found = {one["type"]: one["value"] for one in requirements["resourceRequirements"]}
    assert set(found) <= set(known) and found == {"VCPU": "4", "MEMORY": "3072", **({"GPU": str(gpus)} if gpus else {})}
