"""The base's own run: groups of the head's run once more with the base's library, on the same machine.

It answers two questions: what the same cases executed before the change, and whether a group that fails did so before.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from rich.console import Console

import fixtures
from command_line.gate.choose import Choice
from command_line.preflight import Request
from command_line.suite.run import Outcome, run_suite, set_aside
from fixtures.adapters import package_of
from harness.errors import HarnessError
from harness.evidence import Case, Evidence, Verdict, digest_of, read
from harness.runs import EVIDENCE
from reports.text import plural

FOLDER = "base"
"""Of its evidence and log, in the output folder of the gate."""
SHARE = 0.3
"""Part of the budget that is kept for it."""

_FAILED = frozenset({Verdict.FAIL, Verdict.FLAKY})


@dataclass(frozen=True)
class OfBase:
    """Result of the base's run: its evidence, the verdicts of groups that the head fails, and notes for the reader.
    ``stopped`` is the signal that stopped it."""

    evidence: Evidence | None = None
    failing: Mapping[str, Verdict] = field(default_factory=dict)
    notes: Sequence[str] = ()
    stopped: int | None = None


def groups_for(evidence: Evidence, choice: Choice) -> list[str]:
    """Return the groups that the base should run: first those that the head fails, then those of chosen requirements
    of which a case passed that launched kernels."""
    failing = [name for name, verdict in _verdicts(evidence).items() if verdict in _FAILED]
    place = {name: number for number, name in enumerate(choice.reasons)}
    compared = {
        case.group: place[case.requirement]
        for case in evidence.cases
        if case.requirement in place and _is_comparable(case)
    }
    return list(dict.fromkeys([*failing, *sorted(compared, key=lambda group: compared[group])]))


def of_base(
    copy: Path,
    request: Request,
    evidence: Evidence,
    groups: Sequence[str],
    seconds: float | None,
    output: Path,
    screen: Console,
    *options: str,
) -> OfBase:
    """Run ``groups`` with the library in the folder ``copy`` and the seed of the head's ``evidence``. ``output`` gets
    evidence and log; no group starts after ``seconds``. ``options`` are further ones of pytest.

    A base that fails does not fail the gate; a run that leaves no evidence is stated in the notes.
    """
    if not groups:
        return OfBase(notes=("the base did not run: no kernel of a chosen requirement ran, and nothing failed",))
    output.mkdir(parents=True, exist_ok=True)
    set_aside(output / EVIDENCE)
    screen.print(f"Running {plural(len(groups), 'group')} with the base's library", markup=False)
    seed = evidence.runs[0].seed
    own = replace(request, seed=seed, budget=seconds, waivers=None, quarantine=None)
    order = [option for name in groups for option in ("--group", name)]
    outcome = run_suite(own, output, screen, *options, "-p", fixtures.SELECTION, *order, library=copy)
    return _result(outcome, evidence, groups, digest_of(copy / package_of(request.implementation)))


def _result(outcome: Outcome, head: Evidence, groups: Sequence[str], digest: str) -> OfBase:
    if outcome.stopped is not None:
        return OfBase(stopped=outcome.stopped)
    base = read(outcome.evidence) if outcome.evidence.exists() else None
    if base is None or base.problems or not base.runs:
        reason = base.problems[0] if base is not None and base.problems else outcome.ending or "it left no evidence"
        return OfBase(notes=(f"what cases executed was not compared: the base's run {reason}",))
    if base.runs[0].seed != head.runs[0].seed:
        raise HarnessError(f"the base ran with seed {base.runs[0].seed}, the head with {head.runs[0].seed}")
    if (ran := base.runs[0].implementation.get("sha256")) != digest:
        raise HarnessError(f"the base's run imported a library with the digest {ran}, and the base has {digest}")
    verdicts = _verdicts(base)
    failing = {
        name: verdicts[name] for name, verdict in _verdicts(head).items() if verdict in _FAILED and name in verdicts
    }
    late = [name for name in groups if verdicts.get(name, Verdict.NOT_RUN) is Verdict.NOT_RUN]
    notes = [f"the time was too short for {len(late)} of {plural(len(groups), 'group')} of the base"] if late else []
    if old := [name for name, verdict in failing.items() if verdict in _FAILED]:
        notes.append(f"{plural(len(old), 'group')} that failed did so with the base too: {_few(old)}")
    return OfBase(base, failing, tuple(notes))


def _verdicts(evidence: Evidence) -> dict[str, Verdict]:
    return {name: verdict for one in evidence.requirements().values() for name, verdict in one.groups.items()}


def _is_comparable(case: Case) -> bool:
    return case.verdict is Verdict.PASS and bool(case.kernels) and case.telemetry.get("source") == "emulated"


def _few(names: Iterable[str], shown: int = 5) -> str:
    first = list(names)
    more = f" and {len(first) - shown} more" if len(first) > shown else ""
    return f"{', '.join(first[:shown])}{more}"
