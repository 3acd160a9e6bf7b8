"""Comparison of two runs: new failures and mended groups with their causes, changes of compiled code, and of time.

Every list is a ``Section`` of plain text, which ``reports.compare_views`` renders for terminals, Markdown and HTML.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from harness.evidence import Evidence, Kernel, Verdict
from reports.causes import causes_of
from reports.kernels import KINDS, registers_of, spills_of
from reports.text import duration, moment, plural
from reports.text import widths as widths_of
from reports.view import LABELS

SLOWER, LEAST_SECONDS = 1.5, 1.0
"""A group's time has changed if it is longer or shorter by this factor, and by at least this number of seconds."""

_BAD = (Verdict.FAIL, Verdict.FLAKY, Verdict.UNKNOWN)
_COUNTS = ("waits", "instructions")


@dataclass(frozen=True)
class Section:
    """One list of a comparison: a table with a heading. ``bad``: an entry is a reason for exit status 1."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    bad: bool = False


@dataclass(frozen=True)
class Comparison:
    """Comparison of run B with run A. ``headline`` counts what changed; ``worse``: a group of B failed, could not be
    checked or did not run, and did not do so in A."""

    headline: str
    sections: tuple[Section, ...]
    worse: bool


def compare(before: Evidence, after: Evidence) -> Comparison:
    """Return the comparison of ``after`` (B) with ``before`` (A)."""
    old, new = _verdicts(before), _verdicts(after)
    failed = [group for group, verdict in new.items() if verdict in _BAD and old.get(group) not in _BAD]
    lost = [group for group, verdict in new.items() if verdict is Verdict.NOT_RUN and old.get(group) is Verdict.PASS]
    mended = [group for group, verdict in new.items() if verdict is Verdict.PASS and old.get(group) in _BAD]
    still = [group for group, verdict in new.items() if verdict in _BAD and old.get(group) in _BAD]
    absent = [group for group in old if group not in new]
    kernels = _changed_kernels(before, after)
    times = _changed_times(before, after, [group for group in new if new[group] is Verdict.PASS is old.get(group)])
    sections = (
        Section("Runs", ("", "A", "B"), tuple(_runs(before, after))),
        Section("New failures", _CAUSE, tuple(_causes(after, failed)), bad=bool(failed)),
        Section("Groups that no longer ran", ("group",), tuple((group,) for group in lost), bad=bool(lost)),
        Section("Mended", _CAUSE, tuple(_causes(before, mended))),
        Section("Failed in both", _CAUSE, tuple(_causes(after, still))),
        Section("Only planned in A", ("group", "verdict"), tuple((name, LABELS[old[name]]) for name in absent)),
        Section("Compiled code", ("kernel", "change", "variants"), tuple(kernels)),
        Section("Time", ("group", "A", "B", "ratio"), tuple(times)),
    )
    counts = [
        plural(len(failed), "new failure"),
        *([f"{plural(len(lost), 'group')} no longer ran"] if lost else []),
        f"{len(mended)} mended",
        f"{len(still)} failed in both",
        f"{plural(len(kernels), 'change')} of compiled code",
        f"{plural(len(times), 'group')} with another time",
    ]
    return Comparison(", ".join(counts) + ".", tuple(each for each in sections if each.rows), bool(failed or lost))


_CAUSE = ("cause", "groups", "replay")


def _verdicts(evidence: Evidence) -> dict[str, Verdict]:
    return {group: verdict for result in evidence.requirements().values() for group, verdict in result.groups.items()}


def _runs(before: Evidence, after: Evidence) -> Iterable[tuple[str, str, str]]:
    """Yield the facts about the runs: always what ran and when, and everything else in which they differ."""
    facts = [_facts(before), _facts(after)]
    for name in dict.fromkeys((*facts[0], *facts[1])):
        old, new = (each.get(name, "") for each in facts)
        if old != new or name in ("implementation", "device", "verdict"):
            yield name, old, new


def _facts(evidence: Evidence) -> dict[str, str]:
    facts = {"verdict": LABELS[evidence.verdict()]}
    for run in evidence.runs[:1]:
        made = run.implementation
        facts["implementation"] = " ".join(filter(None, (made["name"], made.get("version"), made.get("commit"))))
        facts["device"] = f"{run.device} {run.arch}" + ("" if run.mode == "fast" else f" {run.mode}")
        facts |= {"started": moment(run.started), "level": run.level, "seed": str(run.seed)}
        facts["ranks"] = ", ".join(map(str, run.ranks))
        facts["iris-harness"] = str(run.harness.get("version") or "")
        facts |= {name: version or "" for name, version in run.environment["packages"].items()}
    return facts


def _causes(evidence: Evidence, groups: Sequence[str]) -> Iterable[tuple[str, ...]]:
    """Yield each cause of some of ``groups``, then the groups without a failing case."""
    rest = dict.fromkeys(groups)
    for cause in causes_of(evidence):
        own = [group for group in cause.groups if group in rest]
        if own:
            yield cause.title, _named(own), cause.replay
        for group in own:
            del rest[group]
    for group in rest:
        records = evidence.groups.get(group, [])
        yield (records[-1].message if records else "") or "no case states the reason", group, ""


def _named(groups: Sequence[str]) -> str:
    return groups[0] if len(groups) == 1 else f"{groups[0]} and {len(groups) - 1} more"


def _changed_kernels(before: Evidence, after: Evidence) -> list[tuple[str, str, str]]:
    """Return the kernels that the same case compiled to other code in B: name, change of the figures, and number.

    A kernel name has many variants, so variants are compared by the cases that both runs executed.
    """
    known = {case.id: case for case in before.cases}
    pairs: dict[tuple[str, str], tuple[Kernel, Kernel]] = {}
    for case in after.cases:
        if (earlier := known.get(case.id)) is not None:
            old, new = _by_name(before, earlier.kernels), _by_name(after, case.kernels)
            for name in old.keys() & new.keys():
                if (codes := (_code(old[name]), _code(new[name])))[0] != codes[1]:
                    pairs[codes] = old[name], new[name]
    changes = Counter((new.name, _change(old, new)) for old, new in pairs.values())
    return [(name, change, plural(count, "variant")) for (name, change), count in sorted(changes.items())]


def _by_name(evidence: Evidence, hashes: Sequence[str]) -> dict[str, Kernel]:
    """Return the kernels of a case by name, without those of which the case launched several variants."""
    kernels = [evidence.kernels[each] for each in hashes if each in evidence.kernels]
    counts = Counter(kernel.name for kernel in kernels)
    return {kernel.name: kernel for kernel in kernels if counts[kernel.name] == 1}


def _code(kernel: Kernel) -> str:
    """Return a hash of the instructions, without the names of files."""
    return str(kernel.fingerprint.get("sha256") or kernel.listing_sha256)


def _change(old: Kernel, new: Kernel) -> str:
    before, after = _figures(old), _figures(new)
    arrow = "\N{RIGHTWARDS ARROW}"
    changed = [f"{key} {before[key]} {arrow} {after[key]}" for key in before if before[key] != after[key]]
    return "; ".join(changed) or "other code with the same figures"


def _figures(kernel: Kernel) -> dict[str, str]:
    """Return registers, spills, counts, and the widths of remote accesses."""
    code = kernel.fingerprint
    figures = {"registers": _known(registers_of(code)), "spills": _known(spills_of(code))}
    figures |= {name: _known(code.get(name)) for name in _COUNTS}
    for kind in KINDS:
        widths = code["widths"].get("remote", {}).get(kind, {})
        figures[f"remote {kind}"] = widths_of(widths) if widths else "none"
    return figures


def _known(value: int | None) -> str:
    return "unknown" if value is None else str(value)


def _changed_times(before: Evidence, after: Evidence, groups: Sequence[str]) -> list[tuple[str, ...]]:
    """Return the groups whose time changed, the greatest change first; compilation is not counted."""
    old, new = _seconds(before), _seconds(after)
    changed = []
    for group in groups:
        a, b = old.get(group, 0.0), new.get(group, 0.0)
        if abs(b - a) >= LEAST_SECONDS and max(a, b) >= SLOWER * min(a, b):
            changed.append((abs(b - a), (group, duration(a), duration(b), _ratio(a, b))))
    return [row for _, row in sorted(changed, key=lambda entry: -entry[0])]


def _seconds(evidence: Evidence) -> Mapping[str, float]:
    seconds: dict[str, float] = defaultdict(float)
    for case in evidence.cases:
        seconds[case.group] += max(0.0, case.timing.get("seconds", 0.0) - case.timing.get("compile_seconds", 0.0))
    return seconds


def _ratio(old: float, new: float) -> str:
    return f"{new / old:.1f}" if old else "\N{EN DASH}"
