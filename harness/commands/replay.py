"""Run one recorded case again."""

from __future__ import annotations

import codecs
import json
import re
import shlex
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, BinaryIO

from harness import casefile, runs
from harness.commands.certify import LOG, stop_signals
from harness.commands.preflight import Request, check_request
from harness.commands.suite import Suite, child_environment, conformance_folder, pytest_command, refusal
from harness.errors import UsageError
from harness.evidence import Case, Evidence, read
from harness.evidence.records import to_json
from harness.files import write_whole
from harness.printable import plain
from harness.seeds import RULE, SEEDS

REPLAYS = Path("out", "replay")


@dataclass(frozen=True)
class Replay:
    """A case to run again: its pytest node, its checked record as plain data, the request of its run, and the file in
    which it was found."""

    nodeid: str
    record: Mapping[str, Any]
    request: Request
    source: Path


def find_case(name: str, evidence: Path | None, implementation: str | None = None) -> Replay:
    """The case that ``name`` means: a file with its record (or just its ``nodeid`` and ``case``), or an id, or the
    beginning of one, in ``evidence`` or else in the newest run that has it.

    Options are those of the recorded run: as the file says, else the evidence next to it. Its implementation is code,
    which a file that came from elsewhere must not choose: ``implementation`` has to name the same one, unless it is
    ``iris_under_test`` or the run is the user's own.

    Raises UsageError when there is no such case, when a beginning fits several, for a record that the suite did not
    write, and for an implementation that nobody named.
    """
    if not name.strip():
        raise UsageError("CASE is empty: give the id of a case, the beginning of one, or a file with its record")
    path = Path(name)
    asked = _Asked(name, evidence, implementation)
    if path.exists() and not path.is_dir():
        return _in_file(path, asked)
    if path.parent.name == casefile.FOLDER and casefile.ID.fullmatch(path.stem):  # of a case that passed
        return _in_runs(path.stem, sorted(path.parent.parent.glob("evidence*.jsonl"), reverse=True), asked)
    return _in_runs(name, [evidence] if evidence is not None else runs.recent(), asked)


def run_again(replay: Replay, output: Path | None = None) -> int:
    """Run just that case and copy pytest's output to stdout. The result is 0 if it passed, 128 + N if signal N stopped
    the run, else 1.

    Record, evidence and log stay in ``output``, by default ``out/replay/ID``, or a new folder for temporary files
    where that cannot be written. UsageError when the suite does not have the test, or cannot run it as it is asked.
    """
    folder = _folder(replay, output)
    with runs.claimed(folder):
        record, evidence = folder / "case.json", folder / runs.EVIDENCE
        try:
            evidence.unlink(missing_ok=True)
            write_whole(record, json.dumps(replay.record))
        except OSError as error:
            raise UsageError(
                f"cannot write into {folder} ({error.strerror}): name another --output directory"
            ) from error
        options = [*replay.request.options(), "--replay", str(record), "--evidence", str(evidence)]
        shown = _Shown(replay)
        environment = child_environment(replay.request.implementation)
        with (
            stop_signals() as stop,
            Suite(pytest_command([replay.nodeid], *options), folder / LOG, environment) as suite,
            (folder / LOG).open("rb") as log,
        ):
            while (status := suite.poll()) is None and stop.signal is None:
                if evidence.exists() and evidence.stat().st_size:  # collected: what is refused is refused before
                    shown.show(log)
                time.sleep(0.05)
            if stop.signal is not None:
                suite.stop(hurry=stop.again)
            suite.join()
            if status == 4:
                raise UsageError(f"{replay.source}: {refusal(suite.tail)}")
            shown.show(log, ended=True)
    if stop.signal is not None:
        return 128 + stop.signal
    return 0 if status == 0 else 1


class _Shown:
    """Copies a growing log to stdout, after a line that says which case of which run this is.

    The library under test wrote parts of the log, so control characters are escaped.
    """

    def __init__(self, replay: Replay) -> None:
        self._heading = f"Case {replay.record['id']} of {plain(str(replay.source))}\n"
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def show(self, log: BinaryIO, *, ended: bool = False) -> None:
        """Copy what is new; ``ended``: nothing follows."""
        text = self._decoder.decode(log.read(), ended)
        if sys.stdout is not None and text:
            sys.stdout.write(self._heading + plain(text, lines=True))
            sys.stdout.flush()
            self._heading = ""


@dataclass(frozen=True)
class _Asked:
    """What the user wrote: the case, and where and with what it is looked for."""

    case: str
    evidence: Path | None
    implementation: str | None

    def allowed(self, recorded: str | None, source: Path, *, own: bool) -> str:
        """The implementation to use for a case that was recorded with ``recorded`` (None: not said). UsageError where
        the user has to name it first."""
        named = self.implementation
        if recorded is None:
            return named or casefile.DEFAULT_IMPLEMENTATION
        if named is not None and named != recorded:
            raise UsageError(
                f"{source} was recorded with the implementation {recorded!r:.60}, not with {named!r:.60}: leave"
                " --implementation out, or name that one"
            )
        if named == recorded or own or recorded == casefile.DEFAULT_IMPLEMENTATION:
            return recorded
        where = ["--evidence", str(self.evidence)] if self.evidence is not None else []
        command = shlex.join(["iris-harness", "replay", self.case, *where, "--implementation", recorded])
        raise UsageError(
            f"{source} would run code of the package {recorded!r:.60}, which a file from elsewhere must not choose:"
            f" if you trust that package, use {command:.300}"
        )


def _folder(replay: Replay, output: Path | None) -> Path:
    folder = output or REPLAYS / replay.record["id"]
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            return folder.absolute()
    except OSError as error:
        if output is not None:
            reason = f"cannot write into {folder} ({error.strerror})"
            raise UsageError(f"{reason}: name another --output directory") from error
    try:
        return Path(tempfile.mkdtemp(prefix="iris-replay-"))
    except OSError as error:
        raise UsageError(f"cannot write into {folder} ({error.strerror}): name an --output directory") from error


def _in_file(path: Path, asked: _Asked) -> Replay:
    record = casefile.checked(casefile.load(path), path, conformance_folder())
    beside = asked.evidence or path.absolute().parent.parent / runs.EVIDENCE
    if "request" in record:
        request = _request_in(record["request"], record["nodeid"], path, asked)
    else:
        request = _request_of(read(beside) if beside.is_file() else Evidence(), record["nodeid"], beside, asked)
    return Replay(record["nodeid"], record, request, path)


def _in_runs(name: str, places: Sequence[Path], asked: _Asked) -> Replay:
    """The case from the first of these evidence files that has it. Unreadable files are passed over where there are
    others."""
    problem = ""
    for place in places:
        try:
            evidence = read(place)
        except UsageError as error:
            if len(places) == 1:
                raise
            problem = f"; {error}"
            continue
        fitting = {case.id: case for case in evidence.cases if case.id.startswith(name)}
        if len(fitting) > 1:
            raise UsageError(f"{len(fitting)} cases begin with {name!r} in {place}: give more of the id")
        if fitting:
            [case] = fitting.values()
            return _recorded(case, evidence, place, asked)
    if not places:
        raise UsageError(
            f"there is no case {name!r}: no recent run is known here; name its evidence with --evidence, or a file that"
            " holds the case"
        )
    where = str(places[0]) if len(places) == 1 else f"the {len(places)} newest runs, from {places[0]}"
    raise UsageError(
        f"there is no case {name!r} in {where}: report.html and evidence.jsonl list the ids; name the evidence of"
        f" another run with --evidence{problem}"
    )


def _recorded(case: Case, evidence: Evidence, place: Path, asked: _Asked) -> Replay:
    """From evidence; from the file next to it where there is one, which says more of how the run was asked for."""
    file = place.parent / casefile.FOLDER / f"{case.id}.json"
    record = casefile.checked(json.loads(json.dumps(to_json(case))), place, conformance_folder())
    if file.is_file() and "request" in (saved := casefile.load(file)):
        request = _request_in(saved["request"], case.nodeid, file, asked, own=runs.is_own(place))
        return Replay(case.nodeid, record, request, place)
    request = _request_of(evidence, case.nodeid, place, asked, own=runs.is_own(place))
    return Replay(case.nodeid, record, request, place)


def _request_of(evidence: Evidence, nodeid: str, place: Path, asked: _Asked, *, own: bool = False) -> Request:
    """As the recorded run asked, with the world size of the test alone; the defaults when there is no run record."""
    world = _world(nodeid)
    if not evidence.runs:
        return check_request("emulated", None, world, "gate", asked.allowed(None, place, own=own))
    run = evidence.runs[-1]
    ranks = world or ",".join(map(str, run.ranks))
    name = asked.allowed(run.implementation["name"], place, own=own)
    return check_request(run.device, run.arch, ranks, run.profile, name, run.seed, run.mode, run.ranks_per_gpu)


_TYPES: Mapping[str, tuple[type, ...]] = {
    "device": (str,), "arch": (str,), "mode": (str,), "profile": (str,), "implementation": (str,),
    "seed": (int,), "ranks_per_gpu": (int,), "deadline": (int, float),
}  # fmt: skip


def _request_in(saved: Any, nodeid: str, path: Path, asked: _Asked, *, own: bool = False) -> Request:
    """The request that a case file holds, every value checked."""
    if not isinstance(saved, dict):
        raise UsageError(f"{path}: 'request' must be an object, not {saved!r:.100}")
    for name, types in _TYPES.items():
        value = saved.get(name)
        if not isinstance(value, types) or isinstance(value, bool):
            raise UsageError(f"{path}: {name!r} of its 'request' must be {types[0].__name__}, not {value!r:.100}")
    ranks = saved.get("ranks")
    if not isinstance(ranks, list) or not all(type(size) is int for size in ranks):
        raise UsageError(f"{path}: 'ranks' of its 'request' must be a list of int, not {ranks!r:.100}")
    if saved["seed"] not in SEEDS:
        raise UsageError(f"{path}: the seed of its 'request' is not {RULE}")
    if not casefile.LEAST_DEADLINE <= saved["deadline"] < 86400:
        least = f"{casefile.LEAST_DEADLINE:g}"
        raise UsageError(f"{path}: its 'request' needs a deadline in seconds, from {least} to a day")
    implementation = asked.allowed(saved["implementation"], path, own=own)
    request = check_request(
        saved["device"],
        saved["arch"],
        _world(nodeid) or ",".join(map(str, ranks)),
        saved["profile"],
        implementation,
        saved["seed"],
        saved["mode"],
        saved["ranks_per_gpu"],
    )
    return replace(request, deadline=float(saved["deadline"]))


def _world(nodeid: str) -> str | None:
    found = re.search(r"\branks=(\d+)", nodeid)
    return found[1] if found else None
