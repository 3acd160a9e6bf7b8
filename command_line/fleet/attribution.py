"""Node or software? A failed group runs on another machine, and then again on the first.

    first  other  again
    fail   pass   fail    the machine
    fail   fail   fail    the software: it fails on both
    fail   pass   pass    sometimes: it does not fail each time
    fail   fail   pass    sometimes

No verdict changes: the merged run stays red. Where a run is missing, the answer is *unknown*.
"""

from __future__ import annotations

import os
import platform
from collections import defaultdict
from dataclasses import dataclass, replace

import fixtures
from command_line import preflight
from command_line.commands.check import files_of
from command_line.fleet import slurm
from command_line.fleet.submission import AGAIN, ATTRIBUTE, ATTRIBUTION, LOGS, Submission, read_json, write_json
from command_line.output import console
from command_line.suite.run import run_suite
from harness import runs
from harness.errors import UsageError
from harness.evidence import NO_PROFILE, Evidence, Verdict, read

MACHINE, SOFTWARE, SOMETIMES, UNKNOWN = "machine", "software", "sometimes", "unknown"
ANSWERS = {
    MACHINE: "the machine: it passes on another one and fails on this one again",
    SOFTWARE: "the software: it fails on another machine too",
    SOMETIMES: "sometimes: the same group both passed and failed",
    UNKNOWN: "unknown: it did not run again on both machines",
}
REPORT = "report.json"
LIMIT = 50
"""Failed groups of one machine that run again."""

_FAILED = (Verdict.FAIL, Verdict.FLAKY, Verdict.UNKNOWN)


@dataclass(frozen=True)
class Attributed:
    """A failed group: the machine that it failed on, its verdicts on another one and on this one again, the answer."""

    group: str
    node: str
    other: str | None
    other_verdict: str | None
    again_verdict: str | None

    @property
    def answer(self) -> str:
        """The machine, the software, sometimes, or unknown."""
        return classify(self.other_verdict, self.again_verdict)


def classify(other: str | None, again: str | None) -> str:
    """Return the answer for a group that failed, from its verdict on another machine and again on the first."""
    if {other, again} - {"pass", "fail"}:
        return UNKNOWN
    return {("pass", "fail"): MACHINE, ("fail", "fail"): SOFTWARE}.get((str(other), str(again)), SOMETIMES)


def failed_by_node(evidence: Evidence) -> dict[str, list[str]]:
    """Return the groups that failed, by the name of the machine; at most ``LIMIT`` of each."""
    failed: dict[str, list[str]] = defaultdict(list)
    for name, records in evidence.groups.items():
        if name in evidence.nodes and any(record.verdict in _FAILED for record in records):
            failed[evidence.nodes[name]].append(name)
    return {node: sorted(names)[:LIMIT] for node, names in sorted(failed.items())}


def start(submission: Submission, evidence: Evidence) -> None:
    """Submit the jobs that run failed groups again, and the one that reports about them."""
    last: list[str] = []
    for number, (node, groups) in enumerate(failed_by_node(evidence).items(), 1):
        write_json(submission.path(ATTRIBUTION, f"{number}.json"), {"node": node, "groups": groups})
        try:
            other = _submit(submission, number, "other", f"--exclude={node}")
            submission = submission.with_jobs(**{f"again-{number}-other": other})
            same = _submit(submission, number, "same", f"--nodelist={node}", f"--dependency=afterany:{other}")
        except UsageError as error:  # there is no other machine: the report has the answer "unknown"
            print(f"{len(groups)} failed groups of {node} do not run again: {error}", flush=True)
            continue
        submission = submission.with_jobs(**{f"again-{number}-same": same})
        last.append(same)
        print(f"{len(groups)} failed groups of {node} run again: jobs {other}, {same}", flush=True)
    if last:
        job = slurm.submit(
            str(submission.path(ATTRIBUTE)), f"--dependency=afterany:{':'.join(last)}", "--nodes=1",
            "--job-name=iris-attribute", *submission.plan.slurm.options(merge=True),
            f"--output={submission.path(LOGS, 'attribute.log')}",
        )  # fmt: skip
        submission.with_jobs(attribute=job)


def run_again(submission: Submission, number: str, which: str) -> int:
    """Run the failed groups of a machine on this one, and record their verdicts. Returns 0 if all got one."""
    failed = read_json(submission.path(ATTRIBUTION, f"{number}.json"))
    if failed is None or which not in ("other", "same"):
        raise UsageError(f"{submission.folder} has no failed groups with the number {number!r:.20}")
    groups, request = list(failed["groups"]), submission.plan.request()
    if not request.ranks:
        request, _ = preflight.with_profile(request, submission.plan.run.profile or None)
    folder = submission.path(ATTRIBUTION, f"{number}-{which}")
    folder.mkdir(parents=True, exist_ok=True)
    names = [word for group in groups for word in ("--group", group)]
    targets = files_of(sorted({group.partition("[")[0] for group in groups}))
    request = replace(request, profile=NO_PROFILE)
    run_suite(request, folder, console(), "-p", fixtures.SELECTION, *names, targets=targets)
    evidence = folder / runs.EVIDENCE
    recorded = read(evidence).groups if evidence.exists() else {}
    node = os.environ.get("SLURMD_NODENAME") or platform.node()
    verdicts = {name: recorded[name][-1].verdict.value for name in groups if name in recorded}
    write_json(submission.path(ATTRIBUTION, f"{number}-{which}.json"), {"node": node, "verdicts": verdicts})
    print(f"{node}: {', '.join(f'{name} {verdict}' for name, verdict in verdicts.items())}", flush=True)
    return 0 if len(verdicts) == len(groups) else 1


def attributed(submission: Submission) -> list[Attributed]:
    """Return the failed groups with their verdicts so far, those of each machine in order of name."""
    answers = []
    for path in sorted(submission.path(ATTRIBUTION).glob("*.json")):
        if not path.stem.isdigit() or (failed := read_json(path)) is None:
            continue
        other, same = (read_json(path.with_name(f"{path.stem}-{which}.json")) or {} for which in ("other", "same"))
        if same and same.get("node") != failed["node"]:
            same = {}
        verdicts = [each.get("verdicts", {}) for each in (other, same)]
        answers += [
            Attributed(name, failed["node"], other.get("node"), *(each.get(name) for each in verdicts))
            for name in failed["groups"]
        ]
    return answers


def in_words(answers: list[Attributed]) -> list[str]:
    """Return a line for each failed group: where it failed, what it did on another machine, and the answer."""
    return [
        f"{each.group}: fail on {each.node}, {each.other_verdict or 'not run'} on {each.other or 'another machine'},"
        f" {each.again_verdict or 'not run'} on {each.node} again: {ANSWERS[each.answer]}"
        for each in answers
    ]


def report(submission: Submission) -> int:
    """Write and print the answers for all failed groups. Returns 0."""
    answers = attributed(submission)
    plain = {"groups": [{**vars(each), "answer": each.answer} for each in answers]}
    write_json(submission.path(ATTRIBUTION, REPORT), plain)
    for line in in_words(answers):
        print(line, flush=True)
    return 0


def _submit(submission: Submission, number: int, which: str, *options: str) -> str:
    log = submission.path(LOGS, f"again-{number}-{which}.log")
    return slurm.submit(
        str(submission.path(AGAIN)), "--nodes=1", "--job-name=iris-again", *submission.plan.slurm.options(), *options,
        f"--output={log}", arguments=(str(number), which),
    )  # fmt: skip
