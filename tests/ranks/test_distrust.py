"""The library under test runs in the ranks' processes: nothing that they send or write breaks the controller."""

from __future__ import annotations

import resource
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from fixtures.check import CaseDidNotPass, Check
from fixtures.execution import Execution
from fixtures.ledger import Ledger
from fixtures.levels import LEVELS
from fixtures.options import Options
from fixtures.outcome import of_failure
from fixtures.requirement import Property
from fixtures.rig import Rig
from harness import evidence
from harness.evidence import Verdict
from harness.ranks import RankCutOff, RankFailure, RankGroup, wire
from harness.ranks.output import OUTPUT_LIMIT
from harness.text import TEXT_LIMIT
from tests.ranks import hostile
from tests.ranks.hostile import PlainCase

TARGETS = "tests.ranks.hostile"


@pytest.fixture(scope="module")
def group() -> Iterator[RankGroup]:
    with RankGroup(2, f"{TARGETS}:setup", {"compile_once": False}) as group:
        yield group


def cut_off(group: RankGroup, target: str, **payload: Any) -> RankCutOff:
    """Return the failure of a call that ends its group and has no other effect."""
    group.start()
    generation = group.generation
    with pytest.raises(RankCutOff) as caught:
        group.call(f"{TARGETS}:{target}", {**payload}, deadline=60)
    assert group.pids == ()
    group.call(f"{TARGETS}:sends", {"bytes": b""})
    assert group.generation == generation + 1
    return caught.value


def test_nothing_that_a_rank_sends_is_executed(group: RankGroup, tmp_path: Path) -> None:
    failure = cut_off(group, "sends_a_pickle", folder=str(tmp_path / "made"))
    assert not (tmp_path / "made").exists(), "the controller ran code of a rank"
    assert "rank 1 sent a frame that cannot be decoded" in str(failure)


def test_a_flood_is_cut_before_it_is_read(group: RankGroup) -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    failure = cut_off(group, "floods_the_socket")
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024
    assert grown < hostile.FLOOD / 4, f"the controller grew by {grown:,} bytes"
    outcome = of_failure(failure)
    assert outcome.verdict is Verdict.FAIL and outcome.fatal
    assert outcome.message == f"rank 1 sent a frame of {1 << 40:,} bytes; at most {wire.FRAME_LIMIT:,} are read"


@pytest.mark.parametrize(
    ("sent", "reason"),
    [
        (wire.encode(["result", "forged"]) * 2, "an answer that no call waits for"),
        (wire.encode("result"), "a message that is not an answer to a call"),
        (wire.encode(["error", {"type": "ValueError"}]), "an error without type, message"),
        (struct.pack("<Q", 0), "a frame that cannot be decoded"),
    ],
    ids=["two answers", "no answer", "half an error", "nothing"],
)
def test_what_is_no_answer_is_cut(group: RankGroup, sent: bytes, reason: str) -> None:
    assert f"rank 1 sent {reason}" in cut_off(group, "sends", bytes=sent).summary


@pytest.mark.parametrize("kind", ["huge", "mute"])
def test_any_text_of_an_exception_is_a_short_one(group: RankGroup, kind: str) -> None:
    group.start()
    generation = group.generation
    with pytest.raises(RankFailure) as caught:
        group.call(f"{TARGETS}:raises", kind)
    error = caught.value.first
    assert len(error.message) <= TEXT_LIMIT and len(error.traceback) <= TEXT_LIMIT
    if kind == "huge":
        assert error.message.startswith("xxx") and error.message.endswith("xxx")
        assert "characters cut" in error.message
    else:
        assert error.message == "(no message: Mute.__str__ raised ArithmeticError)"
    assert "in raises" in error.traceback
    assert group.generation == generation


def test_a_result_that_is_too_long_is_an_error_of_the_call(group: RankGroup) -> None:
    group.start()
    generation = group.generation
    with pytest.raises(RankFailure) as caught:
        group.call(f"{TARGETS}:returns")
    assert caught.value.errors[1].type == "harness.ranks.wire.FrameError"
    assert f"at most {wire.FRAME_LIMIT:,} can be sent" in caught.value.errors[1].message
    assert "a message of 200,000,0" in caught.value.errors[1].message
    assert group.generation == generation


def test_a_flood_of_output_is_cut_while_it_is_written(group: RankGroup, caplog: pytest.LogCaptureFixture) -> None:
    _, (written, largest) = group.call(f"{TARGETS}:floods_stdout", deadline=60)
    assert written >= 5 * OUTPUT_LIMIT
    assert largest < OUTPUT_LIMIT + (2 << 20)
    assert "rank 1 wrote too much output" in caplog.text
    with pytest.raises(RankFailure) as caught:
        group.call(f"{TARGETS}:floods_stdout", "raise", deadline=60)
    short, long = (caught.value.output[rank] for rank in (0, 1))
    assert short.split("\n") == ["first words of rank 0", "last words of rank 0"]
    assert long.startswith("first words of rank 1\n") and long.endswith("last words of rank 1")
    assert "bytes of output cut" in long and len(long) < 1 << 15
    assert list(caught.value.cut_output) == [1] and caught.value.cut_output[1] > 4 * OUTPUT_LIMIT


@pytest.mark.parametrize(
    ("function", "verdict"),
    [
        (hostile.case_with_huge_text, "rank 0 raised ValueError: yyy"),
        (hostile.case_that_raises_huge_text, "rank 0 raised builtins.ValueError: zzz"),
        (hostile.case_with_huge_difference, "rank 0, text: got 'ggg"),
    ],
)
def test_evidence_stays_small(group: RankGroup, tmp_path: Path, function: Callable[..., Any], verdict: str) -> None:
    record, size = executed(group, tmp_path, function)
    assert record.verdict is Verdict.FAIL and record.message.startswith(verdict)
    assert "characters cut" in record.message
    assert size < 100_000, f"{size:,} bytes of evidence"


def test_a_case_arrives_as_it_was_drawn(group: RankGroup, tmp_path: Path) -> None:
    record, _ = executed(group, tmp_path, hostile.case_that_is_returned)
    assert record.differs is not None
    assert (record.differs.what, record.differs.got) == ("PlainCase", repr(PlainCase("put")))
    assert record.case["type"] == "PlainCase"


def test_a_verdict_says_that_output_was_cut(group: RankGroup, tmp_path: Path) -> None:
    record, _ = executed(group, tmp_path, floods_and_raises)
    assert "; the harness discarded at least " in record.message and "bytes of the output of rank 1" in record.message


def floods_and_raises(env: hostile.Stub, case: Any) -> None:
    hostile.floods_stdout(env, "raise")


def executed(group: RankGroup, folder: Path, function: Callable[..., Any]) -> tuple[evidence.Case, int]:
    """The record of a failing case on ``function``, and the bytes of the evidence. Its report is short, too."""
    options = Options(
        device="emulated", arch="gfx942", mode="fast", ranks=(2,), level=LEVELS["gate"], implementation="none",
        seed=0, evidence=None, replay=None, deadline=60.0,
    )  # fmt: skip
    ledger = Ledger(folder / "evidence.jsonl", options)
    call, cases = lambda check, case: check(function, case), lambda ranks: [PlainCase("put")]
    held = Property("X-1", call, cases, {}, 1.0, 1, None, False, weak=False)
    check = Check(Execution(Rig(group, set()), 2, options), options, ledger, "node", "statement")
    with pytest.raises(CaseDidNotPass):
        check.run(held, {})
    assert len(check.report()) < 100_000
    ledger.store.close()
    path = folder / "evidence.jsonl"
    [record] = evidence.read(path).cases
    return record, path.stat().st_size
