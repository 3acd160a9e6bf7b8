"""The manifest of an Indexed Job: valid for Kubernetes, and its script renames what counts and nothing else."""

import os
import re
import subprocess
from pathlib import Path

import kubernetes_validate
import pytest
import yaml

MANIFEST = Path(__file__).resolve().parents[2] / "ci" / "kubernetes-indexed-job.yaml"
JOB = yaml.safe_load(MANIFEST.read_text())


def test_the_manifest_fits_the_schema_of_kubernetes():
    kubernetes_validate.validate(JOB, "1.33", strict=True)
    wrong = yaml.safe_load(MANIFEST.read_text().replace("completionMode: Indexed", "completionmode: Indexed"))
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(wrong, "1.33", strict=True)


def test_each_index_has_a_shard():
    script = JOB["spec"]["template"]["spec"]["containers"][0]["command"][2]
    [of] = re.findall(r'--shard "\$shard/(\d+)"', script)
    assert int(of) == JOB["spec"]["completions"]
    assert JOB["spec"]["completionMode"] == "Indexed"


@pytest.mark.parametrize(("status", "counts", "ends"), [(0, True, 0), (3, True, 0), (1, True, 1), (2, False, 2)])
def test_the_script_of_a_pod(tmp_path, status, counts, ends):
    (tmp_path / "bin").mkdir()
    program = tmp_path / "bin" / "iris-harness"
    program.write_text(f'#!/bin/sh\necho "$@" > {tmp_path}/words\nmkdir "$9"\nexit {status}\n')
    program.chmod(0o755)
    [*_, script] = JOB["spec"]["template"]["spec"]["containers"][0]["command"]
    path = f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "JOB_COMPLETION_INDEX": "2", "NODE": "n1", "HOSTNAME": "pod-x"}
    runs = tmp_path / "runs"
    runs.mkdir()
    done = subprocess.run(["sh", "-c", script.replace("/runs", str(runs))], env=environment, timeout=30, check=False)
    assert done.returncode == ends
    assert "--shard 3/4 --node n1" in (tmp_path / "words").read_text()
    assert [path.name for path in runs.iterdir()] == ["shard-3" if counts else ".shard-3.pod-x"]
