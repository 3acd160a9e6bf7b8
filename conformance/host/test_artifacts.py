"""IRIS_KERNEL_ARTIFACTS_DIR: the library's launches store their kernels in this folder."""

import json
import tempfile
from pathlib import Path

import torch

from conformance.support.cases import HostCase
from conformance.support.instances import release
from fixtures.findings import Findings
from fixtures.requirement import requirement

VARIABLE = "IRIS_KERNEL_ARTIFACTS_DIR"


def run(env, case):
    """Let all ranks write into one folder that rank 0 creates, as in a user's run."""
    findings, temporary = Findings(env.rank), None
    if env.rank == 0:
        temporary = tempfile.TemporaryDirectory()
    folder = Path(str(env.iris.broadcast(temporary.name if temporary else "")))
    environ = env.module("os").environ
    before = environ.pop(VARIABLE, None)
    iris = env.under_test.iris(heap_size=1 << 16)
    try:
        # Two different sizes, so that the second launch needs another kernel than the first.
        gather(iris, env, 16)
        findings.equal("files without the variable", [str(path) for path in folder.iterdir()], [])
        env.settle()
        environ.update({VARIABLE: str(folder)})
        gather(iris, env, 32)
        env.settle()
        _check_files(env, findings, folder)
    finally:
        environ.pop(VARIABLE, None)
        if before is not None:
            environ.update({VARIABLE: before})
        release(iris)
        env.settle()
        if temporary:
            temporary.cleanup()
    return findings.first


def gather(iris, env, columns):
    mine = iris.zeros(8, columns, dtype=torch.float32)
    iris.ccl.all_gather(iris.zeros(8 * env.world_size, columns, dtype=torch.float32), mine)


def _check_files(env, findings, folder):
    """Check the files that this rank wrote."""
    mine = []
    for path in folder.rglob("metadata.json"):
        metadata = json.loads(path.read_text(encoding="utf-8"))
        if (metadata["algorithm"], metadata["rank"]) == ("all_gather", env.rank):
            mine.append((path, metadata))
    findings.equal("kernels of all_gather that this rank stored", len(mine), 1)
    for path, metadata in mine:
        findings.equal("dtype of the payload", metadata["dtype"], "float32")
        code = {"amdgcn", "ptx"} & set(metadata["stages"])
        findings.true(f"assembly among the stages {sorted(metadata['stages'])}", code)
        for name in metadata["stages"].values():
            findings.true(f"{name} is not empty", (path.parent / name).stat().st_size > 0)
        for stage in code:
            text = (path.parent / metadata["stages"][stage]).read_text(encoding="utf-8")
            findings.true(f"{stage} is that of {metadata['kernel']}", metadata["kernel"] in text)


@requirement("HOST-ARTIFACTS-001", cases=lambda ranks: [HostCase("artifacts")])
def test_artifacts(check, case):
    check(run, case)
