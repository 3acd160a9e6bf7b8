"""Exceptions that a case on a rank group can end with. All of them are verdicts about the case.

``RankError``    one rank's Python exception, as data
``RankFailure``  the function raised on at least one rank
``RankHang``     the deadline passed, or no rank could go on
``RankCrash``    a rank's process ended
``RankCutOff``   a rank's process sent invalid data to the controller
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from harness import machine
from harness.ranks import wire
from harness.text import TEXT_LIMIT, clipped, message_of, repr_of, traceback_of

_LOOP = "harness/ranks/worker.py"
_NAME_LIMIT = 512
_BASES = 64
_REPORTED = 64
"""Entries of a report that are kept."""


class RankError(Exception):
    """A Python exception that was raised on a rank. Picklable, even if the exception itself was not.

    ``type``: its qualified class name; ``message``: its text; ``traceback``: the text of its traceback on the rank;
    ``bases``: qualified names of its class and all bases; ``report``: the result of its ``report()`` method, or {}.
    Texts are clipped to ``harness.text.TEXT_LIMIT`` characters, on the rank and again by the receiver.
    """

    def __init__(
        self,
        rank: int,
        type: str,  # noqa: A002 (the field's name in evidence)
        message: str,
        traceback: str,
        bases: tuple[str, ...] = (),
        report: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(rank, type, message, traceback, bases, dict(report or {}))
        self.rank = rank
        self.type = type
        self.message = message
        self.traceback = traceback
        self.bases = bases
        self.report = dict(report or {})

    def is_a(self, kind: type[BaseException]) -> bool:
        """Return whether the exception on the rank was an instance of ``kind``."""
        return qualified(kind) in self.bases

    def __str__(self) -> str:
        return f"rank {self.rank}: {self.type}: {self.message}"

    @classmethod
    def of(cls, rank: int, error: BaseException) -> RankError:
        """Return the exception ``error`` of rank ``rank`` as data, as a MachineError if the machine failed."""
        error = machine.explained(error) if isinstance(error, Exception) else error
        trace = error.__traceback__
        while trace is not None and trace.tb_next is not None and trace.tb_frame.f_code.co_filename.endswith(_LOOP):
            trace = trace.tb_next  # leave out the frames of the rank's call loop
        report: Mapping[str, Any] = {}
        if callable(getattr(error, "report", None)):
            try:
                report = _plain_report(error.report())  # type: ignore[attr-defined]
            except Exception as broken:  # noqa: BLE001 (the exception itself matters more than its report)
                report = {"report_failed": repr_of(broken)}
        bases = tuple(qualified(base) for base in type(error).__mro__[:_BASES])
        return cls(rank, qualified(type(error)), message_of(error), traceback_of(error, trace), bases, report)

    def to_plain(self) -> dict[str, Any]:
        """Return the error as plain data for the wire, without its rank, which the receiver knows."""
        texts = {"type": self.type, "message": self.message, "traceback": self.traceback}
        return {**texts, "bases": list(self.bases), "report": self.report}

    @classmethod
    def from_plain(cls, rank: int, plain: Any) -> RankError:
        """Return the error that ``to_plain`` wrote. Raises ValueError for other data; clips texts that are too long."""
        fields = plain if isinstance(plain, dict) else {}
        texts = [fields.get(name) for name in ("type", "message", "traceback")]
        bases, report = fields.get("bases"), fields.get("report")
        if not _all_text(texts) or not isinstance(bases, list) or not _all_text(bases) or not isinstance(report, dict):
            raise ValueError("an error without type, message, traceback, bases or report")
        kind, message, trace = (clipped(str(text)) for text in texts)
        names = tuple(clipped(base, _NAME_LIMIT) for base in bases[:_BASES])
        return cls(rank, kind, message, trace, names, _plain_report(report))


class CaseFailed(Exception):  # noqa: N818 (a verdict, not an error of the harness)
    """Base of the exceptions for a case that did not run to its end on every rank.

    ``cut_output``: rank -> bytes of its output during the case that were discarded because there were too many.
    """

    cut_output: Mapping[int, int] = {}


class RankFailure(CaseFailed):
    """A case whose function raised on at least one rank.

    ``errors``: rank -> RankError; ``stacks``: stacks of ranks that did not answer and were killed; ``output``: the end
    of what each rank wrote to stdout and stderr during the case; ``poisoned``: ranks whose device was lost with their
    error, and which exited. The errors of other ranks are then mostly consequences of that.
    """

    def __init__(
        self,
        errors: Mapping[int, RankError],
        stacks: Mapping[int, str] | None = None,
        output: Mapping[int, str] | None = None,
        poisoned: tuple[int, ...] = (),
    ) -> None:
        super().__init__(dict(errors), dict(stacks or {}), dict(output or {}), tuple(poisoned))
        self.errors = dict(errors)
        self.stacks = dict(stacks or {})
        self.output = dict(output or {})
        self.poisoned = tuple(poisoned)

    @property
    def first(self) -> RankError:
        """The error to report: that of the lowest rank that lost its device, or of the lowest rank if none did."""
        return self.errors[min(self.poisoned or self.errors)]

    def __str__(self) -> str:
        lines = [str(error) for _, error in sorted(self.errors.items())]
        if self.poisoned:
            lines.append(f"ranks {list(self.poisoned)} lost their devices and exited")
        if self.stacks:
            lines.append(f"no answer from ranks {sorted(self.stacks)}, which were killed")
        lines += ["", f"traceback of rank {self.first.rank}:", self.first.traceback.rstrip()]
        return "\n".join([*lines, *_tails(self.output)])


class RankHang(CaseFailed):
    """A case whose deadline passed, or that no rank could ever end.

    ``standstill``: why it cannot end, None if the deadline passed. ``stacks``: rank -> its stacks at the end;
    ``deadline``: seconds; ``waiting``: the ranks that had not answered; ``results``: rank -> result, of the ranks that
    had answered.
    """

    def __init__(
        self,
        stacks: Mapping[int, str],
        deadline: float,
        waiting: tuple[int, ...] = (),
        output: Mapping[int, str] | None = None,
        results: Mapping[int, Any] | None = None,
        standstill: str | None = None,
    ) -> None:
        super().__init__(dict(stacks), deadline, tuple(waiting), dict(output or {}), dict(results or {}), standstill)
        self.stacks = dict(stacks)
        self.deadline = deadline
        self.waiting = tuple(waiting)
        self.output = dict(output or {})
        self.results = dict(results or {})
        self.standstill = standstill

    def __str__(self) -> str:
        why = f"within {self.deadline:g} s" if self.standstill is None else f"at a standstill: {self.standstill}"
        lines = [f"no answer from ranks {list(self.waiting)} {why}; the group was killed"]
        for rank, stack in sorted(self.stacks.items()):
            lines += ["", f"--- rank {rank}", stack.rstrip()]
        return "\n".join([*lines, *_tails(self.output)])


class RankCrash(CaseFailed):
    """A case during which a rank's process ended.

    ``exits``: rank -> how it ended, e.g. ``signal 6 (SIGABRT)``, only for ranks that ended by themselves; ``output``:
    rank -> end of its output, faulthandler's dump included; ``errors``: exceptions of ranks that answered before;
    ``full``: the result of ``harness.machine.full_memory`` after the process had ended.
    """

    def __init__(
        self,
        exits: Mapping[int, str],
        output: Mapping[int, str],
        errors: Mapping[int, RankError] | None = None,
        full: str | None = None,
    ) -> None:
        super().__init__(dict(exits), dict(output), dict(errors or {}), full)
        self.exits = dict(exits)
        self.output = dict(output)
        self.errors = dict(errors or {})
        self.full = full

    def __str__(self) -> str:
        lines = [f"rank {rank} ended: {how}" for rank, how in sorted(self.exits.items())]
        lines += [str(error) for _, error in sorted(self.errors.items())]
        return "\n".join([*lines, *_tails(self.output)])


class RankCutOff(CaseFailed):
    """A case during which a rank's process sent invalid data to the controller: a frame that is too long, bytes that
    are not a frame, or an answer without a call. The controller stopped reading and killed the group.

    The rank's call loop sends only frames that it has encoded and measured, one per call. So other code in the process
    wrote to the connection: the library under test, or code that it loads. Like a crash, that is a verdict about the
    library, not an error of the harness.

    ``reasons``: rank -> what it sent; ``output``: rank -> end of what it wrote to stdout and stderr.
    """

    def __init__(self, reasons: Mapping[int, str], output: Mapping[int, str] | None = None) -> None:
        super().__init__(dict(reasons), dict(output or {}))
        self.reasons = dict(reasons)
        self.output = dict(output or {})

    @property
    def summary(self) -> str:
        """One line that names each rank and what it sent."""
        return "; ".join(f"rank {rank} sent {reason}" for rank, reason in sorted(self.reasons.items()))

    def __str__(self) -> str:
        return "\n".join([f"{self.summary}; the group was killed", *_tails(self.output)])


def _plain_report(report: Any) -> dict[str, Any]:
    """Return ``report`` with values that the wire cannot carry replaced by their clipped text."""
    plain = {}
    for key, value in list(dict(report).items())[:_REPORTED]:
        try:
            wire.encode(value, limit=TEXT_LIMIT)
        except (TypeError, ValueError, OverflowError):
            value = clipped(value) if type(value) is str else repr_of(value)
        plain[clipped(str(key), _NAME_LIMIT)] = value
    return plain


def _all_text(values: list[Any]) -> bool:
    return all(isinstance(value, str) for value in values)


def _tails(output: Mapping[int, str]) -> list[str]:
    lines: list[str] = []
    for rank, text in sorted(output.items()):
        if text.strip():
            lines += ["", f"--- output of rank {rank}", text.rstrip()]
    return lines


def qualified(kind: type) -> str:
    """Return the clipped name of a type, with its module: libraries have types of the same names as the harness."""
    return clipped(f"{kind.__module__}.{kind.__qualname__}", _NAME_LIMIT)
