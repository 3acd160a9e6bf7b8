"""The four verdicts, and how several become one."""

from __future__ import annotations

import enum
from collections.abc import Iterable


class Verdict(str, enum.Enum):
    """``pass``; ``fail``: shown to be wrong; ``unknown``: ran but could not be checked; ``not_run``: did not run."""

    PASS = "pass"
    FAIL = "fail"
    UNKNOWN = "unknown"
    NOT_RUN = "not_run"

    def __str__(self) -> str:
        return self.value


_WORST_FIRST = (Verdict.FAIL, Verdict.UNKNOWN, Verdict.NOT_RUN, Verdict.PASS)


def merge(verdicts: Iterable[Verdict]) -> Verdict:
    """The worst of ``verdicts``; nothing at all is ``not_run``. Only passes give a pass: any gap is red."""
    found = set(verdicts)
    return next((verdict for verdict in _WORST_FIRST if verdict in found), Verdict.NOT_RUN)
