"""Repeat recorded calls of the suite on warm ranks, with each binary mutant of the kernels that they launch.

    python -m mutants.binary.session PLAN

PLAN is a JSON file: ``calls`` (the recorder's file), ``results`` (a file to which one JSON object is appended for each
mutant), ``sample``, ``seed``, ``only``, ``known`` (ids to leave out), ``deadline`` (seconds of one call).

A mutant is run on the calls that launch its kernel to the first that fails: first those in weak memory, on fresh ranks,
since on warm ones the library's workspaces still hold the right data of the call without the change. After each mutant
a call is repeated without the change: if it fails, the mutant has left the library's state wrong, and the ranks are
replaced, so that no mutant is judged on the state of another.
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

CALLS_LIMIT = 12
"""Most calls that are repeated for one mutant: the first one of each test that launches its kernel, then the next
ones of the suite."""
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
    """Warm ranks, and the kernels that each recorded call launches. ``package``: see ``mutants_in``."""

    def __init__(self, group: Ranks, calls: Sequence[Call], deadline: float, package: str = "") -> None:
        self._group = group
        self._deadline = deadline
        self._package = package
        self.listings: dict[str, tuple[str, str]] = {}
        self.launching: dict[str, list[Call]] = {}
        self._watch()
        for call in calls:
            if self._outcome(call).verdict is not Verdict.PASS:
                self._watch()
                continue  # it depended on an earlier call of its test
            for key, (name, text) in self._group.call(f"{RANKS}:launched", tuple(self.listings))[0].items():
                if key not in self.listings:
                    self.listings[key] = (name, text)
                self.launching.setdefault(key, []).append(call)

    def mutants(self) -> list[Mutant]:
        """Return the mutants of the package's code in all kernels."""
        return [mutant for name, text in self.listings.values() for mutant in mutants_in(name, text, self._package)]

    def judge(self, mutant: Mutant) -> tuple[Outcome, Call | None]:
        """Return the outcome of the first call that fails with the mutant, and the call. If none fails, the outcome's
        message has what is known about the survivor.
        """
        calls = _of_each_test(self.launching[mutant.file.rpartition("@")[2]])[:CALLS_LIMIT]
        weak, ordinary = _parted(calls)
        failing, outcome = self._first_failing(mutant, weak, fresh=True)
        if failing is None:
            failing, outcome = self._first_failing(mutant, ordinary)
        self._restore(calls[0])
        if failing is None:
            outcome = Outcome(Verdict.PASS, self._explanation(mutant, calls))
        return outcome, failing

    def _first_failing(
        self, mutant: Mutant, calls: Sequence[Call], *, fresh: bool = False
    ) -> tuple[Call | None, Outcome]:
        """Run calls with a mutant to the first that fails, on ``fresh`` ranks if there are any calls."""
        if calls and fresh:
            self._replace()
        self._change(mutant, mutant.new)
        for call in calls:
            if (outcome := self._outcome(call)).verdict is not Verdict.PASS:
                return call, outcome
        return None, Outcome(Verdict.PASS)

    def _explanation(self, mutant: Mutant, calls: Sequence[Call]) -> str:
        """Return what is known about a survivor: that no call reaches it, or that weak memory would show it."""
        if not self._reached(mutant, calls):
            return UNREACHED
        weakened = [_weakened(call, number) for number, call in enumerate(_parted(calls)[1])]
        failing, _ = self._first_failing(mutant, weakened, fresh=True)
        self._restore(calls[0])
        return WEAK if failing is not None and self._outcome(failing).verdict is Verdict.PASS else ""

    def _reached(self, mutant: Mutant, calls: Sequence[Call]) -> bool:
        """Return whether a call executes the mutant's instruction while a lane is active: a trap then ends the call."""
        probe = f"s_cbranch_execz .Lmutant\n\ts_trap 2\n.Lmutant:\n\t{mutant.old}"
        self._change(mutant, probe)
        reached = any(self._outcome(call).verdict is not Verdict.PASS for call in calls)
        self._restore(calls[0])
        return reached

    def _change(self, mutant: Mutant, new: str) -> None:
        key = mutant.file.rpartition("@")[2]
        self._group.call(f"{RANKS}:change", {"key": key, "line": mutant.line, "old": mutant.old, "new": new})

    def _restore(self, call: Call) -> None:
        """Remove the change; replace the ranks if ``call`` then fails."""
        self._watch()
        if self._outcome(call).verdict is not Verdict.PASS:
            self._replace()
            again = self._outcome(call)
            if again.verdict is not Verdict.PASS:
                raise HarnessError(f"{call.nodeid} fails on fresh ranks without a change: {again.message}")

    def _replace(self) -> None:
        """End the ranks: the next call starts fresh ones."""
        with contextlib.suppress(CaseFailed):
            self._group.call(f"{RANKS}:leave", None)
        self._watch()

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
    """Return the calls in weak memory, and the others."""
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
    calls = [Call(**json.loads(line)) for line in Path(options["calls"]).read_text(encoding="utf-8").splitlines()]
    for count in sorted({call.ranks for call in calls}):
        with _group(count) as group:
            session = Session(group, [call for call in calls if call.ranks == count], options["deadline"], BUNDLED)
            mutants = session.mutants()
            _append(results, {COUNT: len(mutants), LISTED: [mutant.id for mutant in mutants]})
            known = set(options["known"])
            wanted = [mutant for mutant in mutants if is_wanted(mutant.id, options["only"])]
            for mutant in sample(wanted, options["sample"], options["seed"]):
                if mutant.id not in known:
                    _append(results, {RESULTS: _result(session, mutant)})
    return 0


def _result(session: Session, mutant: Mutant) -> dict[str, Any]:
    started = time.monotonic()
    outcome, call = session.judge(mutant)
    facts = {
        name: getattr(mutant, name) for name in ("id", "operator", "file", "line", "column", "start", "old", "new")
    }
    killer = {} if call is None else {"requirement": call.requirement, "nodeid": call.nodeid, "fault": outcome.fault}
    seconds = time.monotonic() - started
    return {**facts, **killer, "verdict": str(outcome.verdict), "message": outcome.message, "seconds": seconds}


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
