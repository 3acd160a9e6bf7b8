"""Libraries that know nothing of this project, judged on the emulated machine: torch's symmetric memory and an
outsider's library pass; each planted bug of the outsider's library is found."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from harness import evidence
from harness.emulated_machine import Settings
from harness.evidence import Verdict
from tests.adapters.planted import ROOT, installed, run_suite

SUBSET = "fp32 or (int32 and store) or table or barrier or signal"

VERDICTS = {
    "wrong peer base": ("store", 2, r"MemoryFault|slot that rank \d stores to"),
    "off-by-one tail": ("all_gather and fp32", 2, r"output of all_gather, element \d+: got"),
    "barrier returns early": ("barrier", 2, r"word that rank \d stored before barrier \d+, read after it: got"),
    "stale flag": ("signal", 2, r"after its signal: got|did not end"),
    "relaxed flag": ("all_reduce and fp32", 2, r"output of all_reduce, element \d+.*: got"),
    "flag released to the GPU": ("all_reduce and fp32", 2, r"did not end[\s\S]* runs in mode weak \(lazy"),
    "flag read without acquire": ("all_reduce and fp32", 2, r"output of all_reduce, element \d+.*: got"),
    "no wait for completion": ("all_gather and fp32", 2, r"output of all_gather, element \d+.*: got"),
    "missing end barrier": ("all_gather and fp32", 2, r"output of all_gather, element \d+.*: got"),
    "missing start barrier": ("all_gather and fp32", 2, r"output of all_gather, element \d+.*: got"),
    "wrong rotation": ("all_gather and fp32", 3, r"output of all_gather, element \d+: got"),
}
"""Name of a bug of ``wrong_lib`` -> the tests to run, the number of ranks, and what a verdict must state.

A missing release gives wrong values on a GPU now and then. In mode weak, in which each case is also run, the payload
stays in the writer's cache until the kernel ends, and the kernel ends only after the other rank's flag: at least one
rank reads old values in every run. A flag that is released to the writer's GPU stays in its cache as well, and both
ranks wait for ever. A missing wait shows when a rank is held back."""


def judge(
    folder: Path, implementation: str, subset: str, mode: str = "fast", ranks: int = 2, **variables: str
) -> subprocess.CompletedProcess[str]:
    installed(folder, "outsider", "tests.outsider.adapter:Outsider")
    machine = Settings("gfx942", mode, ranks).environment(os.environ)
    # run_suite puts its own folders in front of this process's PYTHONPATH.
    path = os.pathsep.join([str(folder), machine["PYTHONPATH"]])
    return run_suite(
        folder, implementation, "conformance/calls", "conformance/providers", "--device", "rocm", "--ranks", str(ranks),
        "-k", subset, **{**machine, "PYTHONPATH": path, **variables},
    )  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize(
    "implementation",
    [pytest.param("torch:symmetric-memory", marks=pytest.mark.nightly), "tests.outsider.right_lib:outsider"],
)
def test_a_right_library_passes(tmp_path: Path, implementation: str) -> None:
    done = judge(tmp_path, implementation, SUBSET)
    assert done.returncode == 0, done.stdout + done.stderr
    assert " passed" in done.stdout


@pytest.mark.nightly
def test_the_right_library_passes_where_only_releases_publish(tmp_path: Path) -> None:
    done = judge(tmp_path, "tests.outsider.right_lib:outsider", "signal or (all_reduce and fp32)", "weak")
    assert done.returncode == 0, done.stdout + done.stderr
    assert " passed" in done.stdout


@pytest.mark.nightly
@pytest.mark.parametrize("bug", VERDICTS)
def test_a_planted_bug_is_found(tmp_path: Path, bug: str) -> None:
    subset, ranks, message = VERDICTS[bug]
    done = judge(tmp_path, "tests.outsider.wrong_lib:outsider", subset, ranks=ranks, OUTSIDER_BUG=bug)
    assert done.returncode == 1, done.stdout + done.stderr
    assert re.search(message, done.stdout), done.stdout


@pytest.mark.nightly
def test_certify_judges_counts_and_repeats(tmp_path: Path) -> None:
    """The exit status, the table of capabilities, what is unsupported, and the command that repeats a failing case."""
    installed(tmp_path, "outsider", "tests.outsider.adapter:Outsider")
    environment = {
        **os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), str(ROOT)]), "OUTSIDER_BUG": "off-by-one tail",
    }  # fmt: skip

    def run(*command: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=600, check=False
        )

    harness = (sys.executable, "-m", "command_line")
    done = run(
        *harness, "emulate", "--gpus", "2", "--", *harness, "certify", "--adapter", "outsider", "--implementation",
        "tests.outsider.wrong_lib", "--device", "rocm", "--ranks", "2", "--level", "ci", "--output", "out",
    )  # fmt: skip
    assert done.returncode == 1, done.stdout + done.stderr
    assert re.search(r"\d+ failed,\s+\d+\s+are\s+unsupported", done.stdout), done.stdout
    actual = evidence.read(tmp_path / "out" / "evidence.jsonl")
    failed = {name for name, each in actual.requirements().items() if each.verdict is Verdict.FAIL}
    assert failed == {"CALL-ALLREDUCE-001", "CALL-ALLGATHER-001"}
    assert actual.capabilities["collective.all_reduce"] == "present"
    assert actual.capabilities["collective.all_to_all"].startswith("missing")
    assert set(actual.unsupported) >= {"CALL-ALLTOALL-001", "CALL-REDUCESCATTER-001", "PROVIDER-CONTAINS-001"}
    page = (tmp_path / "out" / "report.html").read_text()
    _, _, table = page.partition(">Capabilities<")
    assert "collective.all_to_all" in table and "heap.contains" in table
    unsupported = page.partition(">Unsupported<")[2]
    assert "CALL-ALLTOALL-001" in unsupported
    repeat = next(case.repeat for case in actual.cases if case.repeat)
    again = run("bash", "-c", repeat.replace("PYTHONPATH=", f"PYTHONPATH={tmp_path}{os.pathsep}", 1))
    assert again.returncode == 1 and "verdict: rank " in again.stdout, repeat + again.stdout + again.stderr


@pytest.mark.nightly
def test_the_published_program_runs_as_a_user_of_gpus_starts_it(tmp_path: Path) -> None:
    """The example chooses nccl if it sees GPUs; it exits with 1 if the value did not arrive."""
    example = Path(__file__).resolve().parents[2] / "examples" / "published_usage.py"
    done = subprocess.run(
        [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", str(example)],
        env=Settings("gfx942", "fast", 2).environment(os.environ), cwd=tmp_path, capture_output=True, text=True,
        timeout=240, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
