"""A library with the published API only is green at its API, and unsupported beyond it.

Planted: an op that is missing, one that is wrong, and a declaration that is."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from fixtures.capabilities import FILE
from harness.evidence import Evidence, Verdict, read
from tests import python

ROOT = Path(__file__).resolve().parents[2]
LIBRARY = "tests.published_iris"
SOME = (
    "conformance/rma/test_put.py", "conformance/host/test_names.py", "conformance/host/test_tensors.py",
    "conformance/host/test_instance.py", "conformance/device/test_signatures.py",
    "conformance/collectives/test_waits.py", "conformance/collectives/test_config.py",
    "conformance/collectives/test_handles.py", "conformance/memory/test_errors.py",
    "conformance/ops/test_config.py", "conformance/tracing/test_host.py", "conformance/providers/test_table.py",
)  # fmt: skip
"""A few requirements of each subject."""


def judged(folder: Path, *arguments: str, implementation: str = LIBRARY) -> tuple[int, str, Evidence]:
    """Return the exit status, the output and the evidence of pytest on two ranks."""
    done = run(folder, *arguments, implementation=implementation)
    return done.returncode, done.stdout + done.stderr, read(folder / "evidence.jsonl")


def run(folder: Path, *arguments: str, implementation: str) -> subprocess.CompletedProcess[str]:
    """Run pytest with the library, which may be in ``folder``."""
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        "-n",
        "0",
        "--ranks",
        "2",
        "--level",
        "ci",
    ]
    command += ["--implementation", implementation, "--evidence", str(folder / "evidence.jsonl"), *arguments]
    environment = {**os.environ, "PYTEST_ADDOPTS": "", "PYTHONPATH": f"{ROOT}{os.pathsep}{folder}"}
    return python.run(command, cwd=ROOT, env=environment, timeout=300)


WITHOUT_PUT = """
from tests.published_iris.package import build

build(__name__, without=("put",))
"""
WITH_A_WRONG_OP = """
from tests.published_iris import instance
from tests.published_iris.package import build

class Wrong(instance.Collectives):
    def all_to_all(self, *tensors, **options):
        return None

class Iris(instance.Iris):
    @property
    def ccl(self):
        return Wrong(self._iris.ccl)

build(__name__, without=("put",), replaced={"Iris": Iris, "iris": Iris, "experimental.iris_gluon.iris": Iris})
"""


def planted(folder: Path, text: str) -> str:
    """Write a variant of the published library, and return its name."""
    package = folder / "planted_iris"
    package.mkdir()
    (package / "__init__.py").write_text(text, encoding="utf-8")
    return package.name


@pytest.mark.nightly
def test_a_published_library_is_green_at_its_level(tmp_path: Path) -> None:
    chosen = ("-k", "not dtype or int32")
    status, output, evidence = judged(tmp_path, *SOME, "--api", "published", *chosen)
    assert status == 0, output
    verdicts = {name: result.verdict for name, result in evidence.requirements().items()}
    assert set(verdicts.values()) == {Verdict.PASS} and len(verdicts) >= 12, verdicts
    assert evidence.api == "published" and evidence.unsupported == {}
    assert {"CCL-ASYNC-001", "MEMORY-ERRORS-001"}.isdisjoint({*verdicts, *evidence.statements})
    assert "of the API published" in output


@pytest.mark.nightly
def test_beyond_its_level_it_is_unsupported(tmp_path: Path) -> None:
    status, output, evidence = judged(
        tmp_path, "conformance/collectives/test_handles.py", "conformance/memory/test_errors.py",
        "conformance/collectives/test_waits.py",
    )  # fmt: skip
    assert status == 0, output
    results = {name: result.verdict for name, result in evidence.requirements().items()}
    assert results == {
        "CCL-ASYNC-001": Verdict.UNSUPPORTED,
        "CCL-WAIT-001": Verdict.UNSUPPORTED,
        "MEMORY-ERRORS-001": Verdict.UNSUPPORTED,
        "MEMORY-CHOICE-001": Verdict.PASS,
    }
    assert evidence.verdict() is Verdict.UNSUPPORTED, "neither green nor red"
    assert evidence.unsupported["CCL-WAIT-001[ranks=2,op=gather]"] == "needs ccl.gather"
    assert evidence.requirements()["CCL-WAIT-001"].groups["CCL-WAIT-001[ranks=2,op=all_gather]"] is Verdict.PASS
    assert "unsupported: 3 of 4 requirements need what the library lacks" in output


@pytest.mark.nightly
def test_a_missing_op_is_unsupported_and_a_wrong_one_is_red(tmp_path: Path) -> None:
    """Planted: a library without the function put, whose all_to_all moves nothing."""
    name = planted(tmp_path, WITH_A_WRONG_OP)
    status, output, evidence = judged(
        tmp_path, "conformance/rma/test_put.py", "conformance/collectives/test_waits.py",
        "conformance/device/test_signatures.py", "conformance/host/test_names.py", "--api", "published", "-k",
        "not dtype or int32 or fp16", implementation=name,
    )  # fmt: skip
    results = {name: result.verdict for name, result in evidence.requirements().items()}
    assert results["RMA-PUT-003"] is Verdict.UNSUPPORTED and results["RMA-PUT-002"] is Verdict.PASS, output
    assert results["DEVICE-SIGNATURE-001"] is Verdict.PASS, "of the operations that are there"
    assert results["HOST-NAMES-001"] is Verdict.UNSUPPORTED and evidence.unsupported["HOST-NAMES-001"] == "needs put"
    groups = evidence.requirements()["CCL-WAIT-001"].groups
    assert [group for group, verdict in groups.items() if verdict is Verdict.FAIL] == [
        "CCL-WAIT-001[ranks=2,op=all_to_all]"
    ]
    assert status == 1 and evidence.verdict() is Verdict.FAIL, output


@pytest.mark.nightly
def test_a_declared_capability_that_is_absent_is_red(tmp_path: Path) -> None:
    """Planted: the declaration states the whole published API, and the function put is not there."""
    name = planted(tmp_path, WITHOUT_PUT)
    (tmp_path / name / FILE).write_text('format = 1\napi = "published"\n', encoding="utf-8")
    passing = "conformance/collectives/test_config.py"
    status, output, evidence = judged(tmp_path, passing, implementation=name)
    assert evidence.requirements()["CCL-CONFIG-001"].verdict is Verdict.PASS, output
    assert status == 1 and evidence.verdict() is Verdict.FAIL, output
    assert evidence.declaration == (f"{FILE} declares put, which is not there",)
    assert f"red: {FILE} declares put" in output
    (tmp_path / "evidence.jsonl").unlink()
    (tmp_path / name / FILE).write_text('format = 1\napi = "publishd"\n', encoding="utf-8")
    done = run(tmp_path, passing, implementation=name)
    assert done.returncode == 4, done.stdout
    assert "planted_iris/iris_capabilities.toml: api: expected published or extended, got 'publishd'" in done.stderr
