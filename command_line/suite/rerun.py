"""Random cases of a certificate, run again on this machine, several at the same time."""

from __future__ import annotations

import contextlib
import random
import tempfile
import time
from collections import deque
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import click

from certificates import Verification
from harness import runs
from harness.errors import UsageError
from harness.evidence import APART, Case, Evidence, Verdict, read, sources_of
from harness.evidence.environment import installed_version
from harness.printable import plain

if TYPE_CHECKING:
    from command_line.commands.replay import Replay
    from command_line.suite.process import Suite

_RUN = (Verdict.PASS, Verdict.FAIL)
_REFUSED = 4
"""pytest's exit status for wrong options."""


def cases(certificate: Verification, count: int, implementation: str | None) -> int:
    """Run ``count`` random cases of a certificate, all if it has fewer; print whether each gave the recorded verdict,
    and whether its kernels have the recorded code.

    The code is compared if this machine has the recorded library and Triton, which make the same code everywhere. As
    many cases run at the same time as emulated ranks fit this machine; cases of GPUs run one after the other.

    Returns 0 if all did, 1 if one did not, 128 + N if signal N stopped the run. Cases that were neither a pass nor a
    failure are not run. Raises UsageError if this installation or machine cannot run them, or if ``implementation``
    does not confirm the certificate's implementation.
    """
    try:
        from command_line.commands.replay import recorded_cases
        from command_line.preflight import check_software
        from command_line.suite.run import stop_signals
    except ModuleNotFoundError as error:
        raise UsageError(
            f"--rerun needs packages that are not installed ({error.name}): pip install 'iris-harness[suite]'"
        ) from error
    evidence = certificate.evidence or Evidence()
    recorded = {case.id: case for case in evidence.cases if case.verdict in _RUN}
    incomparable = _incomparable(evidence)
    chosen = random.SystemRandom().sample(sorted(recorded), min(count, len(recorded)))
    with tempfile.TemporaryDirectory(prefix="iris-rerun-") as folder:
        replays = recorded_cases(certificate.write_evidence(Path(folder)), chosen, implementation)
        for request in dict.fromkeys(replay.request for replay in replays):
            check_software(request.device, request.arch, request.ranks, request.ranks_per_gpu)
        different = []
        with stop_signals() as stop, contextlib.ExitStack() as running:
            waiting, active = deque(replays), dict[str, "tuple[Replay, Suite]"]()
            done, limit = 0, _at_once(replays)
            while (waiting or active) and stop.signal is None:
                while waiting and len(active) < limit:
                    replay = waiting.popleft()
                    identity = str(replay.record["id"])
                    active[identity] = replay, running.enter_context(_started(replay, Path(folder, identity)))
                time.sleep(0.05)
                ended = {name: status for name, (_, suite) in active.items() if (status := suite.poll()) is not None}
                for identity, status in ended.items():
                    replay, suite = active.pop(identity)
                    done += 1
                    line = _difference(replay, suite, status, recorded[identity].verdict)
                    if not line and not incomparable:
                        line = _other_code(recorded[identity], evidence, Path(folder, identity, runs.EVIDENCE))
                    if line:
                        different.append(line)
                    click.echo(plain(f"{done} of {len(replays)}: {line or f'case {identity} gave the same verdict'}"))
            for _, suite in active.values():
                suite.stop(hurry=stop.again)
    if stop.signal is not None:
        return 128 + stop.signal
    same = "verdict" if incomparable else "verdict and the recorded code"
    click.echo(f"Rerun: {len(chosen) - len(different)} of {len(chosen)} cases gave the recorded {same}")
    if incomparable:
        click.echo(plain(f"The code of their kernels was not compared: {incomparable}"))
    return 1 if different else 0


def _started(replay: Replay, folder: Path) -> Suite:
    from command_line.commands.replay import start

    folder.mkdir()
    return start(replay, folder)


def _difference(replay: Replay, suite: Suite, status: int, recorded: Verdict) -> str:
    """Return in one line how a case ended otherwise than recorded, "" if it did not; UsageError if it was refused."""
    from command_line.suite.process import refusal

    suite.join()
    if status == _REFUSED:
        raise UsageError(f"case {replay.record['id']} of the certificate: {refusal(suite.tail)}")
    if (status == 0) == (recorded is Verdict.PASS):
        return ""
    now = "passed" if status == 0 else "did not pass"
    return f"case {replay.record['id']} of {replay.record['group']} {now}, and the certificate records {recorded}"


def _incomparable(evidence: Evidence) -> str:
    """Return in a clause why kernels that are compiled here may differ from the recorded ones, "" if they may not."""
    for run in evidence.runs:
        under_test = run.implementation
        if under_test.get("sha256") is None or under_test["sha256"] != sources_of(str(under_test["name"])):
            return f"the sources of {under_test['name']:.60} are not the recorded ones"
        here, there = installed_version("triton"), run.environment.get("packages", {}).get("triton")
        if here != there:
            return f"this machine has Triton {here}, and the run had {there!s:.40}"
    return ""


def _other_code(case: Case, evidence: Evidence, place: Path) -> str:
    """Return in one line which kernels of a case, run again with its evidence at ``place``, have other instructions
    than recorded; "" if none has.

    The new process may launch more kernels than the recorded one, which had launched some in an earlier case: these
    must be recorded with another case.
    """
    again = read(place)
    launched = [hash_ for each in again.cases if each.id == case.id for hash_ in each.kernels]
    recorded, now = _codes(evidence, case.kernels), _codes(again, launched)
    names = sorted({name for name, _ in (recorded - now) | (now - _codes(evidence, evidence.kernels))})
    if not names:
        return ""
    return f"case {case.id} of {case.group} ran other code than the certificate records: {', '.join(names):.200}"


def _codes(evidence: Evidence, hashes: Iterable[str]) -> set[tuple[str, str]]:
    """Return the names of kernels and the hashes of their normalised instructions."""
    kernels = (evidence.kernels[hash_] for hash_ in hashes)
    return {(kernel.name, str(kernel.fingerprint.get("sha256"))) for kernel in kernels}


def _at_once(replays: list[Replay]) -> int:
    """Return how many of the cases run at the same time."""
    from command_line.suite import groups
    from fixtures.rig import uses_gpus

    requests = [replay.request for replay in replays]
    if any(uses_gpus(request.device) for request in requests):
        return 1
    sizes = [size for request in requests for size in request.ranks]
    return groups.fitting(groups.measured(), sizes or [1], apart=any(request.judge == APART for request in requests))
