"""``iris-harness attribute``: whether failures of a run on GPUs follow the GPUs or the software."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import click

from command_line import preflight
from command_line.commands.replay import Replay, recorded_cases, start
from command_line.fleet.attribution import MACHINE, SOFTWARE, SOMETIMES, UNKNOWN, classify
from command_line.options import PATH
from command_line.output import printable
from command_line.suite.process import refusal
from command_line.suite.run import StopRequest, stop_signals
from harness import runs
from harness.devices import inventory
from harness.devices.gpu_kind import GpuInfo
from harness.devices.table import gpu_kind
from harness.errors import UsageError
from harness.evidence import Evidence, Verdict, read
from harness.files import write_whole

REPORT = "attribution.json"
GPUS = "gpus"
ANSWERS = {
    GPUS: "the GPUs: it passes on others and fails on these again",
    SOFTWARE: "the software: it fails on other GPUs too",
    SOMETIMES: "sometimes: the same case both passed and failed",
    UNKNOWN: "unknown: it did not run again on both",
}
LIMIT = 50
"""Failed groups that run again."""

_FAILED = (Verdict.FAIL, Verdict.FLAKY, Verdict.UNKNOWN)


@dataclass(frozen=True)
class Attributed:
    """A failed group: its reduced case, the GPUs that the case ran on (uuids), others, the verdict on those and on the
    first again. None: it did not run there."""

    group: str
    case: str
    gpus: tuple[str, ...]
    others: tuple[str, ...]
    other_verdict: str | None
    again_verdict: str | None

    @property
    def answer(self) -> str:
        """One of ``ANSWERS``."""
        answer = classify(self.other_verdict, self.again_verdict)
        return GPUS if answer == MACHINE else answer


@click.command("attribute", short_help="GPUs or software: run failed cases on other GPUs.")
@click.argument("evidence", type=PATH)
@click.option("--output", type=PATH, default=Path("out", "attribute"), show_default=True, help="Directory for results.")
@click.option("--implementation", default=None, help="The package under test of the run; confirms its use.")
def command(evidence: Path, output: Path, implementation: str | None) -> int:
    """Run the reduced case of each failed group in EVIDENCE on other GPUs of this machine, then on its own again.

    A case that passes on other GPUs and fails again on its own is the GPUs' fault; one that fails on others too is the
    software's. No verdict of the run changes. The visible GPUs must be more than the run of a case uses.

    \b
    Exit status: 0  each failed group got an answer
                 1  an answer is unknown
                 2  the request was wrong, or the run used no GPUs
                 130, 143  stopped by Ctrl-C or SIGTERM
    """
    recorded = read(evidence)
    failed = failed_cases(recorded)
    if not failed:
        click.echo("No group of the run failed with a case that can be repeated.")
        return 0
    used = gpus_of(recorded, failed.values())
    if missing := [group for group, case in failed.items() if not used.get(case)]:
        raise UsageError(f"{evidence} does not state the GPUs of {missing[0]}: only runs on GPUs can be attributed")
    replays = recorded_cases(evidence, list(failed.values()), implementation)
    for request in dict.fromkeys(replay.request for replay in replays):
        preflight.check_software(request.device, request.arch, request.ranks, request.ranks_per_gpu)
    visible = {gpu.uuid: gpu for gpu in inventory.visible(replays[0].request.device)}
    folder = preflight.output_folder(output, REPORT)
    results: list[Attributed] = []
    with runs.claimed(folder), stop_signals() as stop:
        for group, replay in zip(failed, replays, strict=True):
            own = used[str(replay.record["id"])]
            others = tuple(uuid for uuid in visible if uuid not in own)[: len(own)]
            verdicts = []
            for name, uuids in (("other", others), ("again", own)):
                gpus = [visible[uuid] for uuid in uuids if uuid in visible]
                enough = len(gpus) == len(own) and stop.signal is None
                verdicts.append(_run(replay, gpus, folder / f"{replay.record['id']}-{name}", stop) if enough else None)
            if stop.signal is not None:
                return 128 + stop.signal
            results.append(Attributed(group, str(replay.record["id"]), own, others, verdicts[0], verdicts[1]))
            click.echo(printable(in_words(results[-1])))
        plain = {"groups": [{**asdict(each), "answer": each.answer} for each in results]}
        write_whole(folder / REPORT, json.dumps(plain, indent=1) + "\n")
    return 1 if any(each.answer == UNKNOWN for each in results) else 0


def failed_cases(evidence: Evidence) -> dict[str, str]:
    """Return the id of the reduced case of each group that failed, at most ``LIMIT``."""
    failed = {
        name: record.failing_case
        for name, records in evidence.groups.items()
        for record in records
        if record.verdict in _FAILED and record.failing_case
    }
    return dict(sorted(failed.items())[:LIMIT])


def gpus_of(evidence: Evidence, cases: Iterable[str]) -> dict[str, tuple[str, ...]]:
    """Return the uuids of the GPUs that each of the cases ran on, in the order of its ranks, from its telemetry."""
    wanted, used = set(cases), dict[str, tuple[str, ...]]()
    for record in evidence.telemetry:
        for case in wanted & set(record.cases):
            used[case] = tuple(dict.fromkeys(str(gpu["gpu"]) for gpu in record.gpus))
    return used


def in_words(each: Attributed) -> str:
    """Return the answer for a group in one line."""
    own, others = (", ".join(uuids) or "other GPUs" for uuids in (each.gpus, each.others))
    return (
        f"{each.group}: fail on {own}, {each.other_verdict or 'not run'} on {others},"
        f" {each.again_verdict or 'not run'} on {own} again: {ANSWERS[each.answer]}"
    )


def _run(replay: Replay, gpus: Sequence[GpuInfo], folder: Path, stop: StopRequest) -> str | None:
    """Run a case on these GPUs only; return "pass" or "fail", None if it was stopped or has no verdict."""
    folder.mkdir(parents=True, exist_ok=True)
    visibility = gpu_kind(gpus[0].device).visibility(gpus, os.environ)
    with start(replay, folder, visibility) as suite:
        while (status := suite.poll()) is None and stop.signal is None:
            time.sleep(0.05)
        if stop.signal is not None:
            suite.stop(hurry=stop.again)
            return None
        suite.join()
        if status == 4:
            raise UsageError(f"{replay.source}: {refusal(suite.tail)}")
    return {0: "pass", 1: "fail"}.get(status if status is not None else -1)
