"""Repeat recorded calls of the suite on warm ranks, with each binary mutant of the kernels that they launch.

    python -m mutants.binary.session PLAN

PLAN is a JSON file: ``calls`` and ``further`` (files of the recorder: mutants are made of the kernels of the first, and
calls of both judge them), ``results`` (a file to which one JSON object is appended for each mutant), ``sample``,
``seed``, ``only``, ``known`` (ids to leave out), ``deadline`` (seconds of one call).

A mutant is run on all calls that launch its kernel, to the first that fails. Before its plain calls, and before those
with a schedule of the adversary, the ranks get a new instance of the library: memory of the old one still holds the
right data of other calls. A call that failed is repeated without the change; if it fails again, the mutant
before has left the processes in a wrong state, and the mutant is judged on new processes.
"""

from __future__ import annotations

import contextlib
import json
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import psutil

from fixtures.implementation import BUNDLED
from fixtures.options import Options
from fixtures.outcome import Outcome, of_failure, of_results
from fixtures.rig import rig
from harness import adversary
from harness.errors import HarnessError
from harness.evidence import Verdict
from harness.ranks import CaseFailed, Ranks
from mutants.binary import ranks as functions
from mutants.binary.operators import mutants_in
from mutants.listing import is_wanted, sample
from mutants.mutant import Mutant

_OF_ORDER = ("barrier-", "fence-", "scope-", "wait-")
"""Operators whose mutants mostly fail with a schedule of the adversary: those calls come first. Of all others the plain
calls come first, which take less time."""
UNREACHED = "no recorded call executes this instruction while a lane is active"
WEAK = "the same calls fail in weak memory, in which the suite does not run them"
RESULTS, COUNT, LISTED = "result", "count", "ids"
RANKS = functions.__name__


@dataclass(frozen=True)
class Call:
    """A recorded call that passed."""

    requirement: str
    nodeid: str
    ranks: int
    target: str
    payload: Mapping[str, Any]


class Session:
    """Warm ranks, and the kernels that each recorded call launches.

    ``package``: see ``mutants_in``. ``further``: calls that judge the kernels of ``calls``, and give no kernels.
    """

    def __init__(
        self, group: Ranks, calls: Sequence[Call], deadline: float, package: str = "", further: Sequence[Call] = ()
    ) -> None:
        self._group = group
        self._deadline = deadline
        self._package = package
        self.listings: dict[str, tuple[str, str]] = {}
        self.launching: dict[str, list[Call]] = {}
        self._watch()
        for number, call in enumerate((*calls, *further)):
            if self._outcome(call).verdict is not Verdict.PASS:
                self._watch()
                continue  # it depended on an earlier call of its test
            # Ranks have other kernels than rank 0 where groups differ in size, or have a root.
            of_ranks = self._group.call(f"{RANKS}:launched", tuple(self.listings))
            for key, (name, text) in {key: each for rank in of_ranks for key, each in rank.items()}.items():
                if key not in self.listings:
                    if number >= len(calls):
                        continue
                    self.listings[key] = (name, text)
                self.launching.setdefault(key, []).append(call)

    def mutants(self) -> list[Mutant]:
        """Return the mutants of the package's code in all kernels."""
        return [mutant for name, text in self.listings.values() for mutant in mutants_in(name, text, self._package)]

    def judge(self, mutant: Mutant) -> tuple[Outcome, Call | None]:
        """Return the outcome of the first call that fails with the mutant, and the call. If none fails, the outcome's
        message has what is known about the survivor. HarnessError if a call fails without a mutant too.
        """
        calls = _of_each_test(self.launching[mutant.file.rpartition("@")[2]])
        failing, outcome = self._first_failing(mutant, calls)
        if failing is not None and self._without_change(failing).verdict is not Verdict.PASS:
            self._replace()
            failing, outcome = self._first_failing(mutant, calls)
            again = Outcome(Verdict.PASS) if failing is None else self._without_change(failing)
            if again.verdict is not Verdict.PASS:
                raise HarnessError(f"{mutant.id}: a call fails on new processes without the mutant: {again.message}")
        return (Outcome(Verdict.PASS, self._explanation(mutant, calls)) if failing is None else outcome), failing

    def _first_failing(self, mutant: Mutant, calls: Sequence[Call]) -> tuple[Call | None, Outcome]:
        """Run the calls with a mutant to the first that fails."""
        scheduled, plain = _parted(calls)
        parts = (scheduled, plain) if mutant.operator.startswith(_OF_ORDER) else (plain, scheduled)
        for part in filter(None, parts):
            self._renew()
            self._change(mutant, mutant.new)
            for call in part:
                if (outcome := self._outcome(call)).verdict is not Verdict.PASS:
                    return call, outcome
        return None, Outcome(Verdict.PASS)

    def _without_change(self, call: Call) -> Outcome:
        """Return the outcome of a call without a change, with a new instance of the library."""
        self._watch()
        self._renew()
        return self._outcome(call)

    def _explanation(self, mutant: Mutant, calls: Sequence[Call]) -> str:
        """Return what is known about a survivor: that no call reaches it, or that weak memory would show it."""
        if not self._reached(mutant, calls):
            return UNREACHED
        weakened = [_weakened(call, number) for number, call in enumerate(_parted(calls)[1])]
        failing, _ = self._first_failing(mutant, weakened)
        return WEAK if failing is not None and self._without_change(failing).verdict is Verdict.PASS else ""

    def _reached(self, mutant: Mutant, calls: Sequence[Call]) -> bool:
        """Return whether a call executes the mutant's instruction while a lane is active: a trap then ends the call."""
        probe = f"s_cbranch_execz .Lmutant\n\ts_trap 2\n.Lmutant:\n\t{mutant.old}"
        self._renew()
        self._change(mutant, probe)
        return any(self._outcome(call).verdict is not Verdict.PASS for call in calls)

    def _change(self, mutant: Mutant, new: str) -> None:
        key = mutant.file.rpartition("@")[2]
        self._group.call(f"{RANKS}:change", {"key": key, "line": mutant.line, "old": mutant.old, "new": new})

    def _replace(self) -> None:
        """End the ranks: the next call starts fresh ones."""
        with contextlib.suppress(CaseFailed):
            self._group.call(f"{RANKS}:leave", None)
        self._watch()

    def _renew(self) -> None:
        self._group.call(f"{RANKS}:renew", None)

    def _watch(self) -> None:
        self._group.call(f"{RANKS}:watch", None)

    def _outcome(self, call: Call) -> Outcome:
        weak = adversary.SLOWER if adversary.KEY in (call.payload["case"] or {}) else 1.0
        try:
            return of_results(self._group.call(call.target, call.payload, deadline=self._deadline * weak))
        except CaseFailed as failure:
            return of_failure(failure)


def _of_each_test(calls: Sequence[Call]) -> list[Call]:
    """Return the calls, the first one of each test first."""
    first = {call.nodeid: call for call in reversed(calls)}
    return [call for call in calls if call is first[call.nodeid]] + [
        call for call in calls if call is not first[call.nodeid]
    ]


def _parted(calls: Sequence[Call]) -> tuple[list[Call], list[Call]]:
    """Return the calls with a schedule of the adversary, and the others."""
    weak = [call for call in calls if adversary.KEY in (call.payload["case"] or {})]
    return weak, [call for call in calls if call not in weak]


def _weakened(call: Call, number: int) -> Call:
    """Return the call in weak memory, with a schedule of its own."""
    case = call.payload["case"]
    return (
        call
        if case is None
        else replace(call, payload={**call.payload, "case": adversary.in_weak_memory(case, number)})
    )


def main(plan: Path) -> int:
    """Run the session that the file ``plan`` describes, and return the exit status."""
    options = json.loads(plan.read_text(encoding="utf-8"))
    results = Path(options["results"])
    calls, further = _calls(options["calls"]), _calls(options["further"])
    for count in sorted({call.ranks for call in calls}):
        with _group(count) as group:
            chosen, judging = ([call for call in each if call.ranks == count] for each in (calls, further))
            session = Session(group, chosen, options["deadline"], BUNDLED, judging)
            mutants = session.mutants()
            _append(results, {COUNT: len(mutants), LISTED: [mutant.id for mutant in mutants]})
            known = set(options["known"])
            wanted = [mutant for mutant in mutants if is_wanted(mutant.id, options["only"])]
            for mutant in sample(wanted, options["sample"], options["seed"]):
                if mutant.id not in known:
                    _append(results, {RESULTS: _result(session, mutant)})
    return 0


def _calls(path: str) -> list[Call]:
    return [Call(**json.loads(line)) for line in Path(path).read_text(encoding="utf-8").splitlines()]


def _result(session: Session, mutant: Mutant) -> dict[str, Any]:
    started, used = time.monotonic(), _cpu_seconds()
    outcome, call = session.judge(mutant)
    facts = {
        name: getattr(mutant, name) for name in ("id", "operator", "file", "line", "column", "start", "old", "new")
    }
    killer = {} if call is None else {"requirement": call.requirement, "nodeid": call.nodeid, "fault": outcome.fault}
    times = {"seconds": time.monotonic() - started, "cpu_seconds": _cpu_seconds() - used}
    return {**facts, **killer, "verdict": str(outcome.verdict), "message": outcome.message, **times}


def _cpu_seconds() -> float:
    """Return the CPU seconds of this process and all below it so far, with those that have ended and were reaped."""
    total = 0.0
    myself = psutil.Process()
    for process in (myself, *myself.children(recursive=True)):
        with contextlib.suppress(psutil.NoSuchProcess):  # its parent has reaped it in the meantime, and counts it
            total += sum(process.cpu_times()[:4])  # user and system, and those of reaped children
    return total


@contextlib.contextmanager
def _group(count: int) -> Iterator[Ranks]:
    options = Options.checked(
        device=None, arch=None, mode=None, ranks=str(count), level="ci", implementation_name=BUNDLED, seed="0",
        evidence=None, replay=None, deadline=None,
    )  # fmt: skip
    with rig(options, count, lambda message: None) as ranks:
        yield ranks.group


def _append(path: Path, line: Mapping[str, Any]) -> None:
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps(line) + "\n")


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
