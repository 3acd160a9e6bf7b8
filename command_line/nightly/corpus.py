"""The corpus: reduced failures of earlier nights, one case file each, which run before anything else.

``index.json`` next to them has, for each case, the night that added it and the verdict of each night since. A case that
passed in enough nights in a row is *mended*; it stays in the corpus, and runs after the others, until a person removes
its file.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from rich.console import Console

from command_line.commands.replay import Replay, find_case
from command_line.nightly.leg import LegResult, Stopped
from command_line.nightly.plan import Corpus, Plan
from command_line.nightly.union import numbered
from command_line.preflight import check_software
from command_line.suite.run import run_suite
from harness import casefile
from harness.errors import UsageError
from harness.evidence import Verdict, merge, read
from harness.files import write_whole
from harness.runs import EVIDENCE

INDEX, DATABASE = "index.json", "hypothesis"
"""Names in the folder of the corpus; the second is Hypothesis's folder of failing examples."""
SCHEMA = 1
_KEPT = 60
"""Nights whose verdicts of a case are kept."""


@dataclass(frozen=True)
class Replayed:
    """Verdict of a case of the corpus in this night. ``passes``: nights in a row that it passed, this one included.
    ``reason`` is set if it has no verdict. ``attempts``: the evidence of each run of it."""

    id: str
    group: str
    verdict: Verdict
    passes: int
    mended: bool
    file: Path
    reason: str = ""
    attempts: tuple[Path, ...] = ()


class Index:
    """The index of a corpus, read from and written to its folder."""

    def __init__(self, corpus: Corpus) -> None:
        """Read the index. Raises UsageError for one of another schema, and for a damaged one."""
        self._corpus = corpus
        self._path = corpus.folder / INDEX
        self._cases: dict[str, dict[str, Any]] = {}
        try:
            plain = json.loads(self._path.read_bytes())
            if plain["schema"] != SCHEMA:
                raise UsageError(f"{self._path} has schema {plain['schema']!r:.40}, and this version reads {SCHEMA}")
            for name, each in plain["cases"].items():
                nights = {str(night): str(verdict) for night, verdict in each["nights"].items()}
                self._cases[name] = {"group": str(each["group"]), "added": str(each["added"]), "nights": nights}
        except FileNotFoundError:
            pass
        except OSError as error:
            raise UsageError(f"{self._path} cannot be read: {error.strerror}") from error
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            if isinstance(error, UsageError):
                raise
            raise UsageError(f"{self._path} is damaged ({type(error).__name__}: {error}): mend or remove it") from None

    def files(self) -> list[Path]:
        """Return the case files, those that are mended last, and otherwise the newest first."""
        paths = [path for path in self._corpus.folder.glob("*.json") if casefile.ID.fullmatch(path.stem)]
        newest = sorted(paths, key=lambda path: (self._known(path.stem)["added"], path.stem), reverse=True)
        return sorted(newest, key=lambda path: self.mended(path.stem))

    def groups(self) -> list[str]:
        """Return the groups of the cases that are not mended: they run first in each leg."""
        return list(
            dict.fromkeys(self._known(path.stem)["group"] for path in self.files() if not self.mended(path.stem))
        )

    def passes(self, identity: str) -> int:
        """Return the number of nights in a row, the last ones, in which a case passed."""
        verdicts = [verdict for _, verdict in sorted(self._known(identity)["nights"].items()) if verdict != "not_run"]
        count = 0
        while count < len(verdicts) and verdicts[-1 - count] == "pass":
            count += 1
        return count

    def mended(self, identity: str) -> bool:
        """Return whether a case has passed in enough nights."""
        return self.passes(identity) >= self._corpus.mended_after

    def added(self, identity: str) -> str:
        """Return the night that added a case; "" if a person did."""
        return str(self._known(identity)["added"])

    def note(self, identity: str, group: str, night: str, verdict: Verdict) -> None:
        """Set the verdict of a case in a night."""
        entry = self._cases.setdefault(identity, {"group": group, "added": night, "nights": {}})
        entry["nights"][night] = verdict.value
        entry["nights"] = dict(sorted(entry["nights"].items())[-_KEPT:])

    def write(self) -> None:
        """Replace the file."""
        self._corpus.folder.mkdir(parents=True, exist_ok=True)
        write_whole(self._path, json.dumps({"schema": SCHEMA, "cases": self._cases}, indent=1, sort_keys=True) + "\n")

    def _known(self, identity: str) -> Mapping[str, Any]:
        return self._cases.get(identity, {"group": "", "added": "", "nights": {}})


def replay(plan: Plan, index: Index, folder: Path, night: str, screen: Console) -> list[Replayed]:
    """Run the cases of the corpus that have no verdict in ``folder`` yet, within the corpus's budget.

    Raises Stopped if it was stopped from outside.
    """
    limit = time.monotonic() + plan.corpus.budget
    results = []
    for path in index.files():
        results.append(_replayed(path, plan, index, folder / path.stem, night, screen, limit))
        index.write()
    return results


def collect(index: Index, results: Iterable[LegResult], corpus: Corpus, night: str) -> list[str]:
    """Copy the reduced failures of the legs that the corpus lacks into it; return their ids."""
    added = []
    for result in results:
        for case, path in result.failing():
            target = corpus.folder / f"{case.id}.json"
            if target.exists():
                continue
            corpus.folder.mkdir(parents=True, exist_ok=True)
            write_whole(target, path.read_text("utf-8"))
            index.note(case.id, case.group, night, Verdict.FAIL)
            added.append(case.id)
    index.write()
    return added


def _replayed(
    path: Path, plan: Plan, index: Index, folder: Path, night: str, screen: Console, limit: float
) -> Replayed:
    group = ""
    try:
        case = _case(path, plan)
        group = str(case.record.get("group") or case.nodeid)
        verdict, reason = _verdict(folder)
        if verdict is None and time.monotonic() > limit:
            verdict, reason = Verdict.NOT_RUN, "the budget of the corpus had ended"
        elif verdict is None:
            verdict, reason = _run(case, folder, screen)
    except UsageError as error:
        verdict, reason = Verdict.UNKNOWN, str(error)
    index.note(path.stem, group, night, verdict)
    passes, mended = index.passes(path.stem), index.mended(path.stem)
    attempts = tuple(place / EVIDENCE for place in numbered(folder) if (place / EVIDENCE).is_file())
    return Replayed(path.stem, group, verdict, passes, mended, path, reason, attempts)


def _case(path: Path, plan: Plan) -> Replay:
    """Return the case in a file, which may name only implementations of the plan."""
    named = casefile.load(path).get("request", {})
    recorded = named.get("implementation") if isinstance(named, dict) else None
    return find_case(str(path), None, recorded if recorded in plan.implementations else None)


def _run(case: Replay, folder: Path, screen: Console) -> tuple[Verdict, str]:
    request = case.request
    check_software(request.device, request.arch, request.ranks, request.ranks_per_gpu)
    number = max((int(each.name) for each in numbered(folder)), default=0) + 1
    place = folder / str(number)
    place.mkdir(parents=True)
    write_whole(place / "case.json", json.dumps(case.record))
    screen.print(f"corpus: {case.record['id']} ({case.nodeid})", markup=False, soft_wrap=True)
    outcome = run_suite(
        replace(request, budget=None), place, screen, "--replay", str(place / "case.json"), targets=[case.nodeid]
    )
    if outcome.stopped is not None:
        raise Stopped(outcome.stopped)
    verdict, reason = _verdict(folder)
    return verdict or Verdict.UNKNOWN, reason or ("" if verdict else f"the suite {outcome.ending or 'left no verdict'}")


def _verdict(folder: Path) -> tuple[Verdict | None, str]:
    """Return the verdict that an attempt recorded, None if none reached its end."""
    for place in reversed(numbered(folder)):
        if (place / EVIDENCE).is_file() and (place / EVIDENCE).stat().st_size:
            try:
                evidence = read(place / EVIDENCE)
            except UsageError:
                continue
            verdicts = [record.verdict for records in evidence.groups.values() for record in records]
            if evidence.ends and verdicts:
                return merge(verdicts), ""
    return None, ""
