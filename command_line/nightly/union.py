"""The evidence of all attempts of a leg, as one: no group is lost, and none counts twice."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from harness.errors import UsageError
from harness.evidence import Evidence, Group, Run, Verdict, read
from harness.runs import EVIDENCE

ORDER = "order.json"
NORMAL = (0, 1)
"""Exit statuses of pytest after a run that reached its end."""

_SAME = ("implementation", "harness", "packages", "device", "arch", "mode", "level", "seed")
"""What all attempts of a leg share: fields of the run record, and the versions of packages."""

_CUT = ("was cut off: its writer was killed", "has no line end: it was cut off")
_ENDED_SO_FAR = 2
"""Attempts that may die in a group before it is left out of further ones."""


@dataclass(frozen=True)
class Attempts:
    """The attempts of a leg, the oldest first: the path of each evidence file, and its content.

    ``union`` is the evidence of all of them: the plan of the first, the groups that ended with their cases, and the
    last record if the last attempt reached its end.
    """

    files: tuple[Path, ...]
    each: tuple[Evidence, ...]
    union: Evidence = field(default_factory=Evidence)

    @property
    def ended(self) -> bool:
        """True if the last attempt reached its end."""
        return bool(self.each) and _reached_end(self.each[-1])

    @property
    def left(self) -> list[str]:
        """The planned groups without a verdict."""
        return [group for group in self.union.plan if not _has_verdict(self.union.groups.get(group, ()))]

    @property
    def complete(self) -> bool:
        """True if every planned group has a verdict."""
        return bool(self.union.plan) and not self.left

    def used(self) -> float:
        """Return the seconds that the attempts took, up to the last record of each."""
        return sum(map(_seconds, self.files))

    def deadly(self) -> list[str]:
        """Return the groups in which several attempts died: another attempt would die in them, too."""
        dead = [group for evidence in self.each if not _reached_end(evidence) for group in _begun(evidence)]
        return [group for group in dict.fromkeys(dead) if dead.count(group) >= _ENDED_SO_FAR and group in self.left]


def attempts_of(folder: Path) -> Attempts:
    """Return the attempts in the folders ``1``, ``2``, ... of ``folder``. An attempt without a plan counts as none.

    Raises UsageError if two attempts have a verdict for one group, or are of different plans.
    """
    files, each = [], []
    for path in numbered(folder):
        evidence = _read(path / EVIDENCE)
        if evidence is not None and (evidence.plan or evidence.unsupported):
            files.append(path / EVIDENCE)
            each.append(evidence)
    return Attempts(tuple(files), tuple(each), union(each, folder))


def numbered(folder: Path) -> list[Path]:
    """Return the folders of the attempts, the oldest first."""
    folders = folder.iterdir() if folder.is_dir() else []
    return sorted(
        (path for path in folders if path.name.isdecimal() and path.is_dir()), key=lambda path: int(path.name)
    )


def union(each: Sequence[Evidence], where: Path) -> Evidence:
    """Return the evidence of all attempts as one. Raises UsageError for two verdicts for one group, or other plans."""
    if not each:
        return Evidence()
    first, last = each[0], each[-1]
    whole = replace(
        first, kernels={}, cases=[], hardware=[], telemetry=[], groups={}, problems=[], plan=dict(first.plan),
        ends=list(last.ends) if _reached_end(last) else [], runs=first.runs[:1],
    )  # fmt: skip
    for number, evidence in enumerate(each, 1):
        if number > 1 and (foreign := set(evidence.plan) - set(first.plan)):
            raise UsageError(
                f"{where}: attempt {number} planned {min(foreign)}, which attempt 1 did not: begin a new night"
            )
        for name in _SAME if number > 1 and evidence.runs and first.runs else ():
            if (now := _fact(evidence.runs[0], name)) != (then := _fact(first.runs[0], name)):
                raise UsageError(
                    f"{where}: attempt {number} ran with another {name} than attempt 1 ({now!s:.80} instead of"
                    f" {then!s:.80}): begin a new night"
                )
        for group, records in evidence.groups.items():
            if not (_has_verdict(records) or (evidence is last and _reached_end(evidence))):
                continue  # the budget of an attempt that died later
            if group in whole.groups:
                raise UsageError(
                    f"{where}: two verdicts for {group}, the second in attempt {number}: a file was copied"
                )
            whole.groups[group] = list(records)
        whole.cases += [case for case in evidence.cases if case.group in evidence.groups]
        whole.kernels.update(evidence.kernels)
        whole.hardware += evidence.hardware
        whole.telemetry += evidence.telemetry
        cut = () if _reached_end(evidence) or evidence.ends else _CUT
        whole.problems += [problem for problem in evidence.problems if not cut or not problem.endswith(cut)]
    return whole


def _read(path: Path) -> Evidence | None:
    """Return the evidence, None if there is none yet: the attempt died before its first record was complete."""
    if not path.is_file() or not path.stat().st_size:
        return None
    try:
        return read(path)
    except UsageError:
        if b"\n" in path.read_bytes():
            raise
        return None


def _fact(run: Run, name: str) -> object:
    return run.environment.get("packages") if name == "packages" else getattr(run, name)


def _has_verdict(records: Sequence[Group]) -> bool:
    return any(record.verdict is not Verdict.NOT_RUN for record in records)


def _reached_end(evidence: Evidence) -> bool:
    """Return whether every planned group has a record, and pytest ended by itself. Its status does not suffice: a run
    whose supervisor was killed may end with 1. A group that the budget left has a record as well."""
    return (
        bool(evidence.ends)
        and evidence.ends[-1].exit_status in NORMAL
        and all(group in evidence.groups for group in evidence.plan)
    )


def _begun(evidence: Evidence) -> Iterable[str]:
    """Return the groups with cases and without an end."""
    return dict.fromkeys(case.group for case in evidence.cases if case.group not in evidence.groups)


def _seconds(file: Path) -> float:
    """Return the time from the order file, which is written just before the run, to the last record."""
    order = file.parent / ORDER
    return max(0.0, file.stat().st_mtime - order.stat().st_mtime) if order.is_file() else 0.0
