"""What a case on a rank group can end with, beside its results. All of these are verdicts about the case.

``RankError``    one rank's Python exception, as data
``RankFailure``  the function raised on at least one rank
``RankHang``     the deadline passed
``RankCrash``    a rank's process ended
"""

from __future__ import annotations

import traceback as traceback_module
from collections.abc import Mapping
from typing import Any

from harness import machine

_LOOP = "harness/ranks/worker.py"


class RankError(Exception):
    """A Python exception that was raised on a rank. Picklable, whatever the exception itself was.

    ``type``: its qualified class name; ``message``: its text; ``traceback``: the text of its traceback on the rank;
    ``bases``: qualified names of its class and all bases; ``report``: what its ``report()`` method returned, or {}.
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
        """Whether the exception on the rank was an instance of ``kind``."""
        return _qualified(kind) in self.bases

    def __str__(self) -> str:
        return f"rank {self.rank}: {self.type}: {self.message}"

    @classmethod
    def of(cls, rank: int, error: BaseException) -> RankError:
        """The exception ``error`` of rank ``rank`` as data; a MachineError where ``harness.machine`` makes it one."""
        error = machine.explained(error) if isinstance(error, Exception) else error
        trace = error.__traceback__
        while trace is not None and trace.tb_next is not None and trace.tb_frame.f_code.co_filename.endswith(_LOOP):
            trace = trace.tb_next  # the frames of a rank's own loop say nothing
        text = "".join(traceback_module.format_exception(type(error), error, trace))
        report: dict[str, Any] = {}
        if callable(getattr(error, "report", None)):
            try:
                report = dict(error.report())  # type: ignore[attr-defined]
            except Exception as broken:  # noqa: BLE001 (the exception itself matters more than its report)
                report = {"report_failed": repr(broken)}
        bases = tuple(_qualified(base) for base in type(error).__mro__)
        return cls(rank, _qualified(type(error)), str(error), text, bases, report)


class CaseFailed(Exception):  # noqa: N818 (a verdict, not an error of the harness)
    """A case did not run to its end on every rank."""


class RankFailure(CaseFailed):
    """The function raised on at least one rank.

    ``errors``: rank -> RankError; ``stacks``: stacks of ranks that did not answer and were killed; ``output``: what
    each rank wrote to stdout and stderr during the case (its end); ``poisoned``: ranks that lost their device to their
    error, and left. What other ranks raised then is mostly what came of that.
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
        """The error to tell: of the ranks that lost their device if there are any, else of all, the lowest one's."""
        return self.errors[min(self.poisoned or self.errors)]

    def __str__(self) -> str:
        lines = [str(error) for _, error in sorted(self.errors.items())]
        if self.poisoned:
            lines.append(f"the devices of ranks {list(self.poisoned)} were lost, which left")
        if self.stacks:
            lines.append(f"no answer from ranks {sorted(self.stacks)}, which were killed")
        lines += ["", f"traceback of rank {self.first.rank}:", self.first.traceback.rstrip()]
        return "\n".join([*lines, *_tails(self.output)])


class RankHang(CaseFailed):
    """The deadline passed.

    ``stacks``: rank -> what it was doing; ``deadline``: seconds; ``waiting``: the ranks that had not answered;
    ``results``: rank -> what those that had answered returned.
    """

    def __init__(
        self,
        stacks: Mapping[int, str],
        deadline: float,
        waiting: tuple[int, ...] = (),
        output: Mapping[int, str] | None = None,
        results: Mapping[int, Any] | None = None,
    ) -> None:
        super().__init__(dict(stacks), deadline, tuple(waiting), dict(output or {}), dict(results or {}))
        self.stacks = dict(stacks)
        self.deadline = deadline
        self.waiting = tuple(waiting)
        self.output = dict(output or {})
        self.results = dict(results or {})

    def __str__(self) -> str:
        lines = [f"no answer from ranks {list(self.waiting)} within {self.deadline:g} s; the group was killed"]
        for rank, stack in sorted(self.stacks.items()):
            lines += ["", f"--- rank {rank}", stack.rstrip()]
        return "\n".join([*lines, *_tails(self.output)])


class RankCrash(CaseFailed):
    """A rank's process ended during the case.

    ``exits``: rank -> how it ended, e.g. ``signal 6 (SIGABRT)``, the ranks that ended by themselves only; ``output``:
    rank -> end of what it wrote, faulthandler's dump included; ``errors``: exceptions of ranks that answered before;
    ``full``: what ``harness.machine.full_memory`` returned when the process had ended.
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


def _tails(output: Mapping[int, str]) -> list[str]:
    lines: list[str] = []
    for rank, text in sorted(output.items()):
        if text.strip():
            lines += ["", f"--- output of rank {rank}", text.rstrip()]
    return lines


def _qualified(kind: type) -> str:
    return f"{kind.__module__}.{kind.__qualname__}"
