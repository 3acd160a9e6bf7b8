"""``iris-harness replay``: run one recorded case again."""

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

import click

from command_line.options import PATH
from command_line.preflight import Request, check_request, check_software
from command_line.suite.process import Suite, child_environment, conformance_folder, pytest_command, refusal
from command_line.suite.run import LOG, stop_signals
from fixtures.implementation import BUNDLED
from harness import casefile, runs
from harness.errors import UsageError
from harness.evidence import JUDGES, ONE_PROCESS, Case, Evidence, read
from harness.evidence.records import to_json
from harness.files import write_whole
from harness.printable import plain
from harness.seeds import RULE, SEEDS

REPLAYS = Path("out", "replay")


@click.command("replay", short_help="Run one recorded case again.")
@click.argument("case")
@click.option(
    "--evidence", type=PATH, default=None, help="Evidence file with the case.  [default: the newest run that has it]"
)
@click.option("--output", type=PATH, default=None, help="Directory for the record.  [default: out/replay/ID]")
@click.option("--implementation", default=None, help="The package under test that a case file names; confirms its use.")
def command(case: str, evidence: Path | None, output: Path | None, implementation: str | None) -> int:
    """Run one case again: CASE is its id, a prefix of the id, or a file with its record.

    An id is searched in the newest runs of certify, check and pytest, wherever their output is. Only tests of the suite
    are run, whatever a file names. The package under test is iris_under_test; another package that a file names is
    used only if --implementation names the same one, or if the run is your own.

    Exit status 0 if the case passes now, 1 if not, 2 if the case does not exist, 130 if interrupted.
    """
    replay = find_case(case, evidence, implementation)
    request = replay.request
    check_software(request.device, request.arch, request.ranks, request.ranks_per_gpu)
    return run_again(replay, output)


@dataclass(frozen=True)
class Replay:
    """A case to run again: its pytest node id, its checked record as plain data, the request of its run, and the file
    that holds it."""

    nodeid: str
    record: Mapping[str, Any]
    request: Request
    source: Path


def find_case(name: str, evidence: Path | None, implementation: str | None = None) -> Replay:
    """Return the case that ``name`` selects.

    ``name`` is a file with the case's record (or just its ``nodeid`` and ``case``), or an id or a prefix of one, which
    is searched in ``evidence``, or by default in the newest runs.

    The options are those of the recorded run, from the file or else from the evidence next to it. The implementation
    is code, which a file from elsewhere must not choose: ``implementation`` must name the same package, unless that is
    ``iris_under_test`` or the run is the user's own.

    Raises UsageError if the case does not exist, if a prefix matches several cases, if the suite did not write the
    record, or if ``implementation`` does not confirm the record's implementation.
    """
    if not name.strip():
        raise UsageError(
            "CASE is empty: expected the id of a case, a prefix of an id, or a file with the case's record"
        )
    path = Path(name)
    query = _Query(name, evidence, implementation)
    if path.exists() and not path.is_dir():
        return _in_file(path, query)
    if path.parent.name == casefile.FOLDER and casefile.ID.fullmatch(path.stem):  # a case that passed has no file
        return _in_runs(path.stem, sorted(path.parent.parent.glob("evidence*.jsonl"), reverse=True), query)
    return _in_runs(name, [evidence] if evidence is not None else runs.recent(), query)


def recorded_cases(place: Path, identities: Sequence[str], implementation: str | None) -> list[Replay]:
    """Return the cases of one evidence file with these ids, in their order; as ``find_case`` does for one."""
    evidence = read(place)
    by_id = {case.id: case for case in evidence.cases}
    return [
        _recorded(by_id[name], evidence, place, _Query(name, place, implementation)) for name in identities
    ]  # fmt: skip


def run_again(replay: Replay, output: Path | None = None) -> int:
    """Run only that case and copy pytest's output to stdout. Return 0 if it passed, 128 + N if signal N stopped the
    run, else 1.

    The record, the evidence and the log stay in ``output``. The default is ``out/replay/ID``, or a new temporary folder
    if that is not writable. Raises UsageError if the suite does not have the test or refuses the options.
    """
    folder = _folder(replay, output)
    with runs.claimed(folder):
        shown, evidence = _Shown(replay), folder / runs.EVIDENCE
        with stop_signals() as stop, start(replay, folder) as suite, (folder / LOG).open("rb") as log:
            while (status := suite.poll()) is None and stop.signal is None:
                if evidence.exists() and evidence.stat().st_size:  # collection is over: no option was refused
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


def start(replay: Replay, folder: Path, variables: Mapping[str, str] | None = None) -> Suite:
    """Start the run of only that case, with its record, evidence and log in ``folder``. ``variables``: of its
    environment, besides those of this process."""
    record, evidence = folder / "case.json", folder / runs.EVIDENCE
    try:
        evidence.unlink(missing_ok=True)
        write_whole(record, json.dumps(replay.record))
    except OSError as error:
        raise UsageError(f"cannot write into {folder} ({error.strerror}): name another --output directory") from error
    options = [*replay.request.options(), "--replay", str(record), "--evidence", str(evidence)]
    environment = {**child_environment(replay.request.implementation), **(variables or {})}
    return Suite(pytest_command([replay.nodeid], *options), folder / LOG, environment)


class _Shown:
    """Copier of a growing log to stdout, below a heading that names the case and its run.

    The library under test wrote parts of the log, so control characters are escaped.
    """

    def __init__(self, replay: Replay) -> None:
        self._heading = f"Case {replay.record['id']} of {plain(str(replay.source))}\n"
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def show(self, log: BinaryIO, *, ended: bool = False) -> None:
        """Copy the text written since the last call; ``ended`` is True for the last call."""
        text = self._decoder.decode(log.read(), ended)
        if sys.stdout is not None and text:
            sys.stdout.write(self._heading + plain(text, lines=True))
            sys.stdout.flush()
            self._heading = ""


@dataclass(frozen=True)
class _Query:
    """The user's arguments: the case, the evidence to search, and the confirmed implementation."""

    case: str
    evidence: Path | None
    implementation: str | None

    def allowed(self, recorded: str | None, source: Path, *, own: bool) -> str:
        """Return the implementation for a case that was recorded with ``recorded`` (None: the record names none).

        Raises UsageError if the user has to confirm it with --implementation.
        """
        named = self.implementation
        if recorded is None:
            return named or BUNDLED
        if named is not None and named != recorded:
            raise UsageError(
                f"{source} was recorded with the implementation {recorded!r:.60}, not with {named!r:.60}: leave"
                " --implementation out, or name that one"
            )
        if named == recorded or own or recorded == BUNDLED:
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


def _in_file(path: Path, query: _Query) -> Replay:
    record = casefile.checked(casefile.load(path), path, conformance_folder())
    beside = query.evidence or path.absolute().parent.parent / runs.EVIDENCE
    if "request" in record:
        request = _request_in(record["request"], record["nodeid"], path, query)
    else:
        request = _request_of(read(beside) if beside.is_file() else Evidence(), record["nodeid"], beside, query)
    return Replay(record["nodeid"], record, request, path)


def _in_runs(name: str, places: Sequence[Path], query: _Query) -> Replay:
    """Return the case from the first of these evidence files that has it. An unreadable file is skipped unless it is
    the only one."""
    problem = ""
    for place in places:
        try:
            evidence = read(place)
        except UsageError as error:
            if len(places) == 1:
                raise
            problem = f"; {error}"
            continue
        matching = {case.id: case for case in evidence.cases if case.id.startswith(name)}
        if len(matching) > 1:
            raise UsageError(f"{len(matching)} cases begin with {name!r} in {place}: give more characters of the id")
        if matching:
            [case] = matching.values()
            return _recorded(case, evidence, place, query)
    if not places:
        raise UsageError(
            f"there is no case {name!r}, since no recent run is known: name the run's evidence with --evidence, or give"
            " a file that holds the case"
        )
    where = str(places[0]) if len(places) == 1 else f"the {len(places)} newest runs, from {places[0]}"
    raise UsageError(
        f"there is no case {name!r} in {where}: report.html and evidence.jsonl list the ids; for another run, name its"
        f" evidence with --evidence{problem}"
    )


def _recorded(case: Case, evidence: Evidence, place: Path, query: _Query) -> Replay:
    """Return a case of ``evidence``. The case's file next to it, if it exists, has more of the run's options."""
    file = place.parent / casefile.FOLDER / f"{case.id}.json"
    record = casefile.checked(json.loads(json.dumps(to_json(case))), place, conformance_folder())
    if file.is_file() and "request" in (saved := casefile.load(file)):
        request = _request_in(saved["request"], case.nodeid, file, query, own=runs.is_own(place))
        return Replay(case.nodeid, record, request, place)
    request = _request_of(evidence, case.nodeid, place, query, own=runs.is_own(place))
    return Replay(case.nodeid, record, replace(request, judge=case.judge), place)


def _request_of(evidence: Evidence, nodeid: str, place: Path, query: _Query, *, own: bool = False) -> Request:
    """Return the request of the recorded run, with only the test's world size; the defaults without a run record."""
    world = _world(nodeid)
    if not evidence.runs:
        return check_request("emulated", None, world, "gate", query.allowed(None, place, own=own))
    run = evidence.runs[-1]
    ranks = world or ",".join(map(str, run.ranks))
    name = query.allowed(run.implementation["name"], place, own=own)
    return check_request(
        run.device, run.arch, ranks, run.level, name, run.seed, run.mode, run.ranks_per_gpu, nodes=run.nodes
    )


_TYPES: Mapping[str, tuple[type, ...]] = {
    "device": (str,), "arch": (str,), "mode": (str,), "level": (str,), "implementation": (str,),
    "seed": (int,), "ranks_per_gpu": (int,), "deadline": (int, float),
}  # fmt: skip


def _request_in(saved: Any, nodeid: str, path: Path, query: _Query, *, own: bool = False) -> Request:
    """Return the request in a case file, after checking every value."""
    if not isinstance(saved, dict):
        raise UsageError(f"{path}: 'request' must be an object, got {saved!r:.100}")
    for name, types in _TYPES.items():
        value = saved.get(name)
        if not isinstance(value, types) or isinstance(value, bool):
            raise UsageError(f"{path}: {name!r} of its 'request' must be {types[0].__name__}, got {value!r:.100}")
    if saved.get("judge", ONE_PROCESS) not in JUDGES:
        raise UsageError(f"{path}: 'judge' of its 'request' must be {' or '.join(JUDGES)}, got {saved['judge']!r:.100}")
    if type(saved.get("nodes", 1)) is not int:
        raise UsageError(f"{path}: 'nodes' of its 'request' must be int, got {saved['nodes']!r:.100}")
    ranks = saved.get("ranks")
    if not isinstance(ranks, list) or not all(type(size) is int for size in ranks):
        raise UsageError(f"{path}: 'ranks' of its 'request' must be a list of int, got {ranks!r:.100}")
    if saved["seed"] not in SEEDS:
        raise UsageError(f"{path}: the seed of its 'request' is not {RULE}: {saved['seed']!r:.60}")
    if not casefile.LEAST_DEADLINE <= saved["deadline"] < 86400:
        least = f"{casefile.LEAST_DEADLINE:g}"
        raise UsageError(
            f"{path}: its 'request' needs a deadline in seconds, from {least} to a day, got {saved['deadline']!r:.60}"
        )
    implementation = query.allowed(saved["implementation"], path, own=own)
    request = check_request(
        saved["device"],
        saved["arch"],
        _world(nodeid) or ",".join(map(str, ranks)),
        saved["level"],
        implementation,
        saved["seed"],
        saved["mode"],
        saved["ranks_per_gpu"],
        judge=saved.get("judge", ONE_PROCESS),
        nodes=saved.get("nodes", 1),
    )
    return replace(request, deadline=float(saved["deadline"]))


def _world(nodeid: str) -> str | None:
    match = re.search(r"\branks=(\d+)", nodeid)
    return match[1] if match else None
