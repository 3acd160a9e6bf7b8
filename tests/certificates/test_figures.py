"""Numbers that no run can have recorded: ``verify`` names each of them, and none in evidence that a run wrote.

Each forgery is coherent for a reader of evidence, and signed with the right key: the signer himself made it.
"""

from dataclasses import replace

import pytest

from certificates import figures
from harness.errors import HarnessError
from harness.evidence import Case, Difference, End, Group, Run, Telemetry, Verdict, read, store
from tests.certificates import run
from tests.certificates.run import check
from tests.certificates.test_forgeries import PUT_FP16, edited
from tests.evidence import samples

START = 1795226400.0
"""2026-11-21T02:00:00Z, when the run started; it ended one minute later."""


def measured(**changes):
    """Return an edit of the telemetry of every case: that of a run on the emulated device, with changes."""

    def edit(each):
        if not isinstance(each, Case):
            return each
        moved = sum(access["bytes"] for launch in each.launches.values() for access in launch["accesses"])
        window = {
            "source": "emulated", "launches": 1, "ranks": 2, "instructions": {"valu": 4}, "lanes": {"valu": 256},
            "bytes": {"peer": moved}, "seconds": 0.2,
        }  # fmt: skip
        return replace(each, telemetry={**window, **changes}, timing={"seconds": 0.25, "compile_seconds": 0.1})

    return lambda listed: [edit(each) for each in listed]


def on_gpus(window=(START + 1, START + 2), **changes):
    """Return an edit that adds GPU telemetry around the first case."""
    gpu = {
        "rank": 0, "gpu": "GPU-0", "bracket": [START + 0.9, START + 2.1], "samples": 3,
        "gauges": {"power": [70.0, 90.0]}, "deltas": {}, "active": {"throttle_thermal": 1}, "unavailable": {},
    }  # fmt: skip

    def edit(listed):
        identity = next(each.id for each in listed if isinstance(each, Case))
        record = Telemetry("amdsmi", {identity: window}, ({**gpu, **changes},))
        return [*listed[:-1], record, listed[-1]]

    return edit


def failing(**changes):
    """Return an edit that gives the case that failed other contents."""
    return lambda listed: [
        replace(each, **changes) if isinstance(each, Case) and each.verdict is Verdict.FAIL else each for each in listed
    ]


def detail(**changes):
    known = {
        "place": "inside", "region": "slot", "element": 3, "runs": [[3, 4]], "wrong": 1, "of": 8, "bytes": False,
        "got": {"kind": "zero"}, "wanted": {"kind": "payload", "rank": 0, "element": 3},
    }  # fmt: skip
    return Difference("heap", 1, 3, 0, 3, {**known, **changes})


def of_first_group(**changes):
    return lambda listed: [
        replace(each, **changes) if isinstance(each, Group) and each.group == PUT_FP16 else each for each in listed
    ]


POSSIBLE = {
    "measured on the emulated device": measured(),
    "on GPUs": on_gpus(),
    "with a group's seconds": of_first_group(seconds=1.5),
}
IMPOSSIBLE = {
    "a case takes longer than the run": (edited(Case, timing={"seconds": 1e9}), "took 1e+09 s, and the whole run 60 s"),
    "a case takes a little longer than the run": (edited(Case, timing={"seconds": 62.5}), "took 62.5 s, and the whole"),
    "a group takes longer than the run": (of_first_group(seconds=86400.0), f"{PUT_FP16} took 86400 s, and the whole"),
    "the cases of a group take longer than it": (
        lambda listed: of_first_group(seconds=1.0)(edited(Case, timing={"seconds": 0.6})(listed)),
        f"{PUT_FP16} took 1 s, and its cases took 1.2 s",
    ),
    "ranks compile for longer than the case": (
        edited(Case, timing={"seconds": 0.1, "compile_seconds": 3.0}),
        "took 0.1 s, and its ranks compiled for 3 s of them",
    ),
    "a case is measured for longer than it took": (measured(seconds=7.0), "took 0.25 s, and was measured for 7 s"),
    "a case has another seed than the run": (edited(Case, seed=21), "is recorded with seed 21, and the run with 20"),
    "a case is measured on more ranks": (measured(ranks=8), "was measured on 8 ranks, and its group has 2"),
    "a case is measured with more launches": (measured(launches=9), "was measured with 9 launches, and lists 1"),
    "a case is measured with other bytes": (measured(bytes={"peer": 5}), "was measured with 5 bytes moved, and its"),
    "a case has more waiting than it executed": (measured(polled={"valu": 5}), "5 of 4 valu instructions in waits"),
    "a case has more lanes than wavefronts": (measured(lanes={"valu": 257}), "257 lanes in 4 valu instructions"),
    "a case is a reduction of nothing": (edited(Case, phase="shrink"), "is recorded as a reduction, and its group has"),
    "pytest ends with no status of it": (edited(End, exit_status=-9), "ended with status -9, which pytest does not"),
    "ranks share GPUs that they are too few for": (edited(Run, ranks_per_gpu=16), "ranks_per_gpu 16, and with at most"),
    "ranks are on more nodes than there are ranks": (edited(Run, nodes=3), "nodes 3, and with at most 2 ranks"),
    "a world size is recorded twice": (edited(Run, ranks=(2, 2)), "the same world size twice: 2, 2"),
    "telemetry ends before it starts": (on_gpus(window=(START + 2, START + 1)), "starts 1 s after its end"),
    "telemetry is from before the run": (on_gpus(window=(START - 99, START - 98)), "was measured before the start of"),
    "telemetry is from after the run": (on_gpus(window=(START + 9e9, START + 9e9 + 1)), "was measured after the end"),
    "samples are from after the run": (
        on_gpus(bracket=[START + 0.9, START + 500]), "of GPU GPU-0 was measured after the end",
    ),
    "samples are not around the case": (
        on_gpus(bracket=[START + 30, START + 31]), "and was not measured around it",
    ),
    "a gauge falls below its least value": (
        on_gpus(gauges={"power": [90.0, 70.0]}), "GPU-0 has a power from 90 to 70",
    ),
    "a state is active in more samples than there are": (
        on_gpus(active={"throttle_thermal": 4}), "has throttle_thermal in 4 of 3 samples",
    ),
}  # fmt: skip
IMPOSSIBLE_FAILURES = {
    "a wrong rank that does not exist": (failing(differs=replace(detail(), rank=2)), "names rank 2, and"),
    "stacks of a rank that does not exist": (failing(stacks={"0": "x", "7": "y"}), "names rank 7, and its group has 2"),
    "more wrong elements than there are": (failing(differs=detail(wrong=9)), "has 9 wrong elements of 8"),
    "a case that failed more often than it ran": (
        lambda listed: [
            replace(each, repeats={"runs": 3, "failed": 5})
            if isinstance(each, Group) and each.verdict is Verdict.FAIL
            else each
            for each in listed
        ],
        "has a case that failed 5 of 3 times",
    ),
    "a failure without a wrong element": (failing(differs=detail(wrong=0)), "has 0 wrong elements of 8"),
}


def problems_of(signer, listed):
    forged = signer.certificate(listed, "forged.zip")
    assert read(signer.folder / "evidence.jsonl").problems == [], "the forgery is coherent"
    return check(forged, signer.key.public).problems


@pytest.mark.parametrize("name", POSSIBLE)
def test_possible_numbers(signer, name):
    assert problems_of(signer, POSSIBLE[name](run.records())) == ()


@pytest.mark.parametrize("name", IMPOSSIBLE)
def test_an_impossible_number(signer, name):
    edit, words = IMPOSSIBLE[name]
    assert any(words in problem for problem in problems_of(signer, edit(run.records())))


@pytest.mark.parametrize("name", IMPOSSIBLE_FAILURES)
def test_an_impossible_number_of_a_failure(signer, name):
    assert problems_of(signer, failing(differs=detail())(run.failing())) == ()
    edit, words = IMPOSSIBLE_FAILURES[name]
    assert any(words in problem for problem in problems_of(signer, edit(run.failing())))


@pytest.mark.parametrize("edit", [edited(Case, timing={"seconds": -5.0}), of_first_group(seconds=-0.5)])
def test_a_negative_time_is_no_evidence(monkeypatch, tmp_path, edit):
    """The schema refuses it, when it is written and when it is read, so that reports do as well."""
    path = tmp_path / "evidence.jsonl"
    with pytest.raises(HarnessError, match="is less than the minimum of 0"):
        samples.write(path, edit(run.records()))
    monkeypatch.setattr(store, "problem_with", lambda line: None)
    samples.write(path, edit(run.records()))
    [problem, *_] = read(path).problems
    assert "is less than the minimum of 0" in problem


def test_evidence_without_an_end_has_no_period(tmp_path):
    """A run that was stopped has records of any duration: what can be compared is compared."""
    listed = edited(Case, timing={"seconds": 1e9})(run.records())[:-1]
    evidence = read(samples.write(tmp_path / "evidence.jsonl", listed))
    assert list(figures.problems(evidence)) == []
