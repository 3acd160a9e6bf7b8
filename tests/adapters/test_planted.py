"""The suite on heap providers and on torch symmetric memory: right ones are green, and a planted bug is red with a
message that names it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from harness import evidence
from harness.evidence import Verdict
from tests.adapters.planted import installed, run_suite

PROVIDERS = "conformance/providers"
TABLE, LIFE = f"{PROVIDERS}/test_table.py", f"{PROVIDERS}/test_life.py"

BUGS = {
    "Swapped": (f"{TABLE}::test_table", r"bases\[0\], this rank's entry: its own base: got '0x[0-9a-f]+', wanted '0x"),
    "Stale": (
        f"{TABLE}::test_second_heap",
        r"the second heap's bases\[0\]: its own base|heap of rank 0: got 1048576, w",
    ),
    "NoBarrier": (
        f"{LIFE}::test_barrier",
        r"word that rank \d stored before barrier \d, read after it: got \d+, wanted \d+",
    ),
    "Short": (
        f"{TABLE}::test_table",
        r"memory at bases\[\d\] = 0x\w+, the heap of rank \d: got 1044480, wanted 1048576",
    ),
    "Narrow": (TABLE, r"dtype of bases, the table of peer bases: got 'torch\.int32', wanted 'torch\.int64'"),
    "Misaligned": (f"{TABLE}::test_alignment", r"bases\[0\] = 0x\w+ modulo 256: bases are aligned to 256 bytes: got 8"),
}
"""Class in ``tests.adapters.heaps`` -> the tests to run, and what the verdict must state."""


@pytest.mark.parametrize(
    "bug",
    [pytest.param(bug, marks=pytest.mark.slow if bug == "Swapped" else pytest.mark.nightly) for bug in BUGS],
)
def test_a_planted_bug_is_red_and_named(tmp_path: Path, bug: str) -> None:
    chosen, message = BUGS[bug]
    done = run_suite(tmp_path, f"tests.adapters.heaps:{bug}:heap-provider", chosen, "--ranks", "2")
    assert done.returncode == 1, done.stdout + done.stderr
    verdicts = re.findall(r"^verdict: .*", done.stdout, re.MULTILINE)
    assert any(re.search(message, verdict) for verdict in verdicts), "\n".join(verdicts) or done.stdout
    assert "repeat: " in done.stdout


@pytest.mark.nightly
def test_entries_swapped_on_one_rank_are_found_by_kernels(tmp_path: Path) -> None:
    """Check that the rank's own entry being right does not hide a swap of two peers."""
    swapped = "tests.adapters.heaps:SwappedForOne:heap-provider"
    done = run_suite(tmp_path, swapped, PROVIDERS, "--ranks", "3", "-k", "store and int32")
    assert done.returncode == 1, done.stdout + done.stderr
    assert "slot that rank 0 stores to" in done.stdout or "MemoryFault" in done.stdout, done.stdout


@pytest.mark.nightly
@pytest.mark.parametrize(("provider", "ranks"), [("MappedHeap", "2,4"), ("Plain", "2")])
def test_a_right_provider_is_green(tmp_path: Path, provider: str, ranks: str) -> None:
    subset = "not dtype or int32 or bool"
    done = run_suite(
        tmp_path, f"tests.adapters.heaps:{provider}:heap-provider", PROVIDERS, "--ranks", ranks, "-k", subset
    )
    assert done.returncode == 0, done.stdout + done.stderr
    recorded = evidence.read(tmp_path / "evidence.jsonl")
    verdicts = {name: result.verdict for name, result in recorded.requirements().items()}
    optional = {"PROVIDER-CLOSE-001", "PROVIDER-CLOSE-002", "PROVIDER-CONTAINS-001"}
    lacking = optional if provider == "Plain" else set()
    assert {name for name, verdict in verdicts.items() if verdict is Verdict.UNSUPPORTED} == lacking
    assert {verdicts[name] for name in set(verdicts) - lacking} == {Verdict.PASS} and optional <= set(verdicts)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("bug", "message"),
    [
        pytest.param("", "", marks=pytest.mark.nightly),
        ("one_shot skips rank 0", r"rank 0, output of all_reduce:one_shot, element \d+: got"),
        pytest.param(
            "signal does not wait",
            r"message 0 of rank \d, after its signal: got|did not end",
            marks=pytest.mark.nightly,
        ),
    ],
)
def test_torch_symmetric_memory_on_a_stand_in(tmp_path: Path, bug: str, message: str) -> None:
    installed(tmp_path, "cpu-symmetric-memory", "tests.adapters.cpu_symmetric_memory:CpuSymmetricMemory")
    chosen = (
        "-k",
        "signal" if "signal" in bug else "all_reduce" if bug else "fp32 or int32 or table or barrier or signal",
    )
    done = run_suite(
        tmp_path, "torch:cpu-symmetric-memory", "conformance/calls", PROVIDERS, "--ranks", "2", *chosen,
        IRIS_TEST_SYMMETRIC_BUG=bug,
    )  # fmt: skip
    assert done.returncode == bool(bug), done.stdout + done.stderr
    assert re.search(message, done.stdout), done.stdout
