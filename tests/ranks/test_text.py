"""Texts of the library under test are clipped, and exceptions from producing them are caught."""

from __future__ import annotations

from harness.ranks import RankError
from harness.text import TEXT_LIMIT, clipped, message_of, repr_of, traceback_of
from tests.ranks.hostile import Mute


class Unprintable:
    def __repr__(self) -> str:
        raise ArithmeticError("no text")


class Reported(Exception):  # noqa: N818 (planted)
    def report(self) -> dict[object, object]:
        return {"address": 16, "text": "r" * 10**6, "object": Unprintable(), 5: (1, 2)}


def test_a_text_that_fits_is_as_it_was() -> None:
    assert clipped("x" * 100, 100) == "x" * 100


def test_a_long_text_keeps_both_ends_and_says_how_much_was_cut() -> None:
    text = clipped("a" * 500_000 + "b" * 500_000, 1064)
    assert text == f"{'a' * 500} [... 999,000 characters cut ...] {'b' * 500}"
    assert clipped(text, 1064) == text, "clipping again changes nothing"


def test_an_exception_without_text_has_one() -> None:
    assert message_of(Mute()) == "(no message: Mute.__str__ raised ArithmeticError)"
    assert repr_of(Unprintable()) == "(no text: Unprintable.__repr__ raised ArithmeticError)"


def test_a_traceback_of_a_long_message_is_short() -> None:
    try:
        raise ValueError("v" * 10**7) from KeyError("the cause")
    except ValueError as error:
        text = traceback_of(error, error.__traceback__)
    assert len(text) <= TEXT_LIMIT
    assert "test_text.py" in text and "ValueError: vvv" in text and "characters cut" in text


def test_a_report_is_made_to_travel() -> None:
    error = RankError.of(1, Reported())
    assert error.report["address"] == 16 and error.report["5"] == (1, 2)
    assert "characters cut" in error.report["text"] and len(error.report["text"]) <= TEXT_LIMIT
    assert error.report["object"] == "(no text: Unprintable.__repr__ raised ArithmeticError)"
    again = RankError.from_plain(1, error.to_plain())
    assert (again.type, again.bases, again.report) == (error.type, error.bases, error.report)


def test_the_receiver_clips_too() -> None:
    long = "w" * 10**6
    plain = {"type": long, "message": long, "traceback": long, "bases": [long] * 1000, "report": {"text": long}}
    error = RankError.from_plain(0, plain)
    assert len(error.type) + len(error.message) + len(error.traceback) <= 3 * TEXT_LIMIT
    assert len(error.bases) <= 64 and all(len(base) <= 512 for base in error.bases)
    assert len(error.report["text"]) <= TEXT_LIMIT
