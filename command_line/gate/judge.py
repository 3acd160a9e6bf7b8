"""The judgement of a gate, from its evidence, its choice and its figures. It derives no verdict of a group."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from command_line.gate.choose import Choice
from harness.evidence import Evidence, RequirementResult, Verdict


class Word(Enum):
    """The judgement in words, with the exit status of the command."""

    PASSED = ("passed", 0)
    RED = ("red", 1)
    UNCLEAR = ("undecided", 3)
    UNSUPPORTED = ("passed, but the library does not support every requirement", 4)
    WAIVED = ("what failed is waived or quarantined", 5)
    SHORT = ("passed, the rest of the level did not run", 6)

    @property
    def status(self) -> int:
        """The exit status."""
        return self.value[1]

    @property
    def text(self) -> str:
        """The judgement in words."""
        return self.value[0]


@dataclass(frozen=True)
class Judgement:
    """``failures``: requirements that are red, the chosen ones first. ``unclear``: sentences about what is
    undecided. ``idle_chosen`` and ``idle_rest``: groups that did not start in time, of chosen requirements and of
    others. A group that was lost in another way is in ``unclear``."""

    word: Word
    failures: tuple[RequirementResult, ...]
    unclear: tuple[str, ...]
    idle_chosen: tuple[str, ...]
    idle_rest: tuple[str, ...]
    ran: int
    planned: int

    @property
    def headline(self) -> str:
        """One sentence."""
        idle = len(self.idle_chosen) + len(self.idle_rest)
        rest = f", {idle} did not run" if idle else ""
        failed = sum(verdict is not Verdict.PASS for one in self.failures for verdict in one.groups.values())
        bad = f", {failed} of them did not pass" if self.failures else ""
        return f"{self.word.text}: {self.ran} of {self.planned} groups ran{bad}{rest}"


_BAD = frozenset({Verdict.FAIL, Verdict.FLAKY})


def judged(
    evidence: Evidence, choice: Choice, red_figures: Sequence[str] = (), unclear: Sequence[str] = ()
) -> Judgement:
    """Return the judgement. ``red_figures`` and ``unclear``: sentences of other checks, such as figures of kernels."""
    results = evidence.requirements()
    rank = {name: place for place, name in enumerate(choice.order)}
    ordered = sorted(results.values(), key=lambda one: (rank.get(one.id, -1), one.id))
    failures = tuple(one for one in ordered if one.verdict is not Verdict.WAIVED and _failed(one))
    idle = {
        one.id: [name for name, verdict in one.groups.items() if verdict is Verdict.NOT_RUN and name in evidence.groups]
        for one in ordered
    }
    rest = frozenset(choice.rest)
    idle_chosen = tuple(group for name, groups in idle.items() if name not in rest for group in groups)
    idle_rest = tuple(group for name, groups in idle.items() if name in rest for group in groups)
    doubts = [*unclear, *evidence.gaps()]
    for one in ordered:
        doubts += [f"{name} could not be checked" for name, verdict in one.groups.items() if verdict is Verdict.UNKNOWN]
        doubts += [gap for gap in one.gaps if not gap.startswith(tuple(f"{name}:" for name in idle[one.id]))]
    if idle_chosen:
        more = f" and {len(idle_chosen) - 1} more" if len(idle_chosen) > 1 else ""
        doubts.append(f"the time was too short for {idle_chosen[0]}{more}, which the change can affect")
    planned = sum(len(one.groups) for one in ordered)
    verdicts = {one.verdict for one in ordered} - {Verdict.PASS, Verdict.NOT_RUN}
    if failures or red_figures or evidence.declaration or evidence.waiver_problems():
        word = Word.RED
    elif doubts or not planned:
        word = Word.UNCLEAR
    elif idle_rest or evidence.left_out:
        word = Word.SHORT
    elif verdicts & {Verdict.WAIVED, Verdict.QUARANTINED}:
        word = Word.WAIVED
    elif Verdict.UNSUPPORTED in verdicts:
        word = Word.UNSUPPORTED
    else:
        word = Word.PASSED
    ran = planned - len(idle_chosen) - len(idle_rest)
    return Judgement(word, failures, tuple(dict.fromkeys(doubts)), idle_chosen, idle_rest, ran, planned)


def _failed(result: RequirementResult) -> bool:
    return any(verdict in _BAD for verdict in result.groups.values())
