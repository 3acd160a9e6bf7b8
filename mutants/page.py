"""A kill matrix as a page in Markdown."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Iterable, Sequence

from mutants import matrix
from mutants.matrix import Matrix, Result
from mutants.mutant import BINARY, HARNESS, LISTED, REPORTED, SOURCE
from mutants.selection import FIRST, SECOND

TITLES = {
    LISTED: "Listed defects of the library",
    REPORTED: "Defects from public reports",
    SOURCE: "Generated changes of the library's source",
    BINARY: "Generated changes of the compiled machine code",
    HARNESS: "Generated changes of the harness",
}
_REST = (matrix.SURVIVED, matrix.TIMEOUT, matrix.ERROR)


def share(results: Iterable[Result], level: str = "") -> tuple[int, int]:
    """Return how many of the decided mutants were killed, and how many those are: neither errors nor equivalents.

    ``level``: count only the kills at this level of the tests.
    """
    decided = [one for one in results if one.verdict in (matrix.KILLED, matrix.SURVIVED, matrix.TIMEOUT)]
    killed = [one for one in decided if one.verdict == matrix.KILLED and (not level or one.level == level)]
    return len(killed), len(decided)


def page(kills: Matrix) -> str:
    """Return the whole page of a matrix."""
    return f"# Kill matrix\n\n{sections(kills)}"


def sections(kills: Matrix) -> str:
    """Return a summary by kind, then for each kind its operators, what killed, and every mutant that did not die."""
    parts = _summary(kills)
    for kind, heading in TITLES.items():
        if results := [result for result in kills.results if result.kind == kind]:
            parts += [f"\n## {heading}\n", *_kind(results)]
    return "\n".join(parts) + "\n"


def _summary(kills: Matrix) -> list[str]:
    rows = []
    levels = any(result.levels for result in kills.results)
    for kind, heading in TITLES.items():
        results = [result for result in kills.results if result.kind == kind]
        if not results:
            continue
        plain = [result for result in kills.plain if result.kind == kind]
        verdicts = Counter(result.verdict for result in results)
        counts = [verdicts[verdict] for verdict in (matrix.SURVIVED, matrix.TIMEOUT, matrix.EQUIVALENT, matrix.ERROR)]
        run = f"{len(results):,} of {kills.all.get(kind, len(results)):,}"
        by_plain = _percent(plain) if plain else "not run"
        times = [f"{_seconds(results):.1f} s", _cpu(results)]
        at_first = [_percent(results, FIRST) if any(result.levels for result in results) else "not stated"]
        rows.append(
            [heading, run, *(at_first if levels else []), _percent(results), by_plain, *map(str, counts), *times]
        )
    facts = ", ".join(f"{name} {value}" for name, value in kills.environment.items())
    settings = ", ".join(f"{name} {value}" for name, value in kills.settings.items() if value not in (None, False, ""))
    head = [
        "mutants",
        "run",
        *([f"killed at `{FIRST}`", f"killed at `{FIRST}` or `{SECOND}`"] if levels else ["killed"]),
    ]
    head += ["by a plain suite", "survived", "time limit", "equivalent", "error", "median", "CPU, median (all)"]
    text = (
        f"Environment: {facts}. Settings: {settings}. The share is of the mutants that were decided: argued"
        " equivalents and errors are left out, and a mutant whose time limit passed counts as alive.\n"
    )
    return [text, *_table(head, rows)]


def _kind(results: Sequence[Result]) -> list[str]:
    operators = sorted({result.operator for result in results})
    rows = []
    for operator in operators:
        of_it = [result for result in results if result.operator == operator]
        killers = Counter(result.requirement or result.how for result in of_it if result.verdict == matrix.KILLED)
        named = ", ".join(f"{name} ({count})" for name, count in killers.most_common(3))
        rows.append([operator, str(len(of_it)), _percent(of_it), named, f"{_seconds(of_it):.1f} s"])
    ways = Counter(result.how for result in results if result.verdict == matrix.KILLED)
    lines = [*_table(["operator", "run", "killed", "most by", "median"], rows), ""]
    if ways:
        lines.append(f"Killed by: {', '.join(f'{count} {how}' for how, count in ways.most_common())}.")
    if later := [result for result in results if result.verdict == matrix.KILLED and result.level == SECOND]:
        lines += ["", f"Survived at `{FIRST}`, killed at `{SECOND}`:", ""]
        lines += [f"- `{result.id}` {_code(result.change)}: {result.requirement or result.how}" for result in later]
    for verdict in (*_REST, matrix.EQUIVALENT):
        if rest := [result for result in results if result.verdict == verdict]:
            lines += ["", f"{_HEADS[verdict]}:", "", *(f"- {_line(result)}" for result in rest)]
    if reported := [result for result in results if result.report]:
        killed = [result for result in reported if result.verdict == matrix.KILLED]
        lines += ["", *(f"- {result.report}: {result.id.partition(':')[2]}: {result.requirement}" for result in killed)]
    return lines


_HEADS = {
    matrix.SURVIVED: "Survivors",
    matrix.TIMEOUT: "Not decided within the time limit",
    matrix.ERROR: "Errors",
    matrix.EQUIVALENT: "Argued to be equivalent",
}


def _line(result: Result) -> str:
    report = f" ({result.report})" if result.report else ""
    message = f": {_escaped(result.message)}" if result.message else ""
    return f"`{result.id}`{report} {_code(result.change)}{message}"


def _code(text: str) -> str:
    return f"`` {text} ``" if "`" in text else f"`{text}`"


def _seconds(results: Sequence[Result]) -> float:
    return statistics.median(result.seconds for result in results)


def _cpu(results: Sequence[Result]) -> str:
    """Return the median and the sum of the CPU seconds of the results that have them."""
    counted = [result.cpu_seconds for result in results if result.cpu_seconds]
    return f"{statistics.median(counted):.1f} s ({sum(counted) / 60:.1f} min)" if counted else "not counted"


def _percent(results: Sequence[Result], level: str = "") -> str:
    killed, decided = share(results, level)
    return f"{killed} of {decided} ({100 * killed / decided:.1f} %)" if decided else "none decided"


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    lines = [head, ["---"] * len(head), *rows]
    return ["| " + " | ".join(map(_escaped, line)) + " |" for line in lines]


def _escaped(text: str) -> str:
    return text.replace("|", "\\|").replace("<", "&lt;").replace("\n", " ")
