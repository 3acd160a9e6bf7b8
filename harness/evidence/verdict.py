"""The verdicts, and the merging of several into one."""

from __future__ import annotations

import enum
from collections.abc import Iterable


class Verdict(str, enum.Enum):
    """A verdict: ``pass``; ``fail``: shown to be wrong; ``flaky``: shown to be wrong, and the same case passed when it
    was executed again; ``unknown``: ran but could not be checked; ``not_run``; ``quarantined``: failed or flaky, and
    known to be; ``waived``: a requirement failed, and a waiver names it; ``unsupported``: the library does not have
    what the requirement needs.

    No record of a case is flaky, and none of a case or group is quarantined, waived or unsupported.
    """

    PASS = "pass"
    FAIL = "fail"
    FLAKY = "flaky"
    UNKNOWN = "unknown"
    NOT_RUN = "not_run"
    QUARANTINED = "quarantined"
    WAIVED = "waived"
    UNSUPPORTED = "unsupported"

    @property
    def red(self) -> bool:
        """Return whether a run with this verdict is rejected: something failed, is unknown, or did not run."""
        return self not in (Verdict.PASS, Verdict.QUARANTINED, Verdict.WAIVED, Verdict.UNSUPPORTED)

    def __str__(self) -> str:
        return self.value


_WORST_FIRST = (
    Verdict.FAIL,
    Verdict.FLAKY,
    Verdict.UNKNOWN,
    Verdict.NOT_RUN,
    Verdict.QUARANTINED,
    Verdict.WAIVED,
    Verdict.UNSUPPORTED,
    Verdict.PASS,
)


def merge(verdicts: Iterable[Verdict]) -> Verdict:
    """Return the worst of ``verdicts``; ``not_run`` if there are none. The result is a pass only if all are passes."""
    present = set(verdicts)
    return next((verdict for verdict in _WORST_FIRST if verdict in present), Verdict.NOT_RUN)
