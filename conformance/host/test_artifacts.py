"""IRIS_KERNEL_ARTIFACTS_DIR: what the library's launches leave on disk."""

import json
import os
import tempfile
from pathlib import Path

import torch

from fixtures.findings import Findings
from fixtures.requirement import requirement
from harness.cases import HostCase

VARIABLE = "IRIS_KERNEL_ARTIFACTS_DIR"


def run(env, case):
    """All ranks write below one folder of rank 0's, as a user's run does."""
    found, keeper = Findings(env.rank), None
    if env.rank == 0:
        keeper = tempfile.TemporaryDirectory()
    folder = Path(str(env.iris.broadcast(keeper.name if keeper else "")))
    before = os.environ.pop(VARIABLE, None)
    iris = env.under_test.iris(heap_size=1 << 16)
    try:
        # A size of its own each, so that nothing written for the first stands in for the second.
        gather(iris, env, 16)
        found.equal("files without the variable", [str(path) for path in folder.iterdir()], [])
        env.settle()
        os.environ[VARIABLE] = str(folder)
        gather(iris, env, 32)
        env.settle()
        _check_files(env, found, folder)
    finally:
        os.environ.pop(VARIABLE, None)
        if before is not None:
            os.environ[VARIABLE] = before
        iris.close()
        env.settle()
        if keeper:
            keeper.cleanup()
    return found.first


def gather(iris, env, columns):
    mine = iris.zeros(8, columns, dtype=torch.float32)
    iris.ccl.all_gather(iris.zeros(8 * env.world_size, columns, dtype=torch.float32), mine)


def _check_files(env, found, folder):
    """Every rank looks at what it wrote."""
    mine = []
    for path in folder.rglob("metadata.json"):
        metadata = json.loads(path.read_text(encoding="utf-8"))
        if (metadata["algorithm"], metadata["rank"]) == ("all_gather", env.rank):
            mine.append((path, metadata))
    found.equal("kernels of all_gather that this rank kept", len(mine), 1)
    for path, metadata in mine:
        found.equal("dtype of the payload", metadata["dtype"], "float32")
        code = {"amdgcn", "ptx"} & set(metadata["stages"])
        found.true(f"assembly among the stages {sorted(metadata['stages'])}", code)
        for name in metadata["stages"].values():
            found.true(f"{name} is there", (path.parent / name).stat().st_size > 0)
        for stage in code:
            text = (path.parent / metadata["stages"][stage]).read_text(encoding="utf-8")
            found.true(f"{stage} is that of {metadata['kernel']}", metadata["kernel"] in text)


@requirement("HOST-ARTIFACTS-001", cases=lambda ranks: [HostCase("artifacts")])
def test_artifacts(check, case):
    check(run, case)
