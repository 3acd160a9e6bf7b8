"""Is the selection of ``iris-harness gate`` safe, and how much does it save? Measured on the mutants of the project.

    python -m benchmarks.gate_selection docs/results/data/mutants-library.json out/mutants/matrix.json

Every killed mutant of the library's source is planted in memory, the gate chooses what the change can affect, and the
requirement that killed the mutant must be among the chosen ones. The saving is the share of the level's groups that a
gate need not run first; it is computed for all mutants that exist, since that takes no run.

Exit status 1 if a mutant was killed by a requirement that the gate would not have chosen.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from command_line.gate import reach
from command_line.gate.choose import choose
from command_line.gate.reach import Map
from command_line.gate.units import changed, digests_of
from command_line.suite.process import conformance_folder
from harness.evidence import read_table
from harness.evidence.mustpass import parse_list
from harness.evidence.suite import installed_list
from mutants import listing, matrix, planting
from mutants.matrix import KILLED, Result
from mutants.mutant import LISTED, REPORTED, SOURCE, Mutant

KINDS = (REPORTED, LISTED, SOURCE)
LEVEL, PROFILE, API = "gate", "emulated-gfx942", "extended"


@dataclass(frozen=True)
class Planted:
    """A mutant, what the gate chooses for it, the share of the level's groups in that, and the requirement that killed
    it: "" if none is known."""

    mutant: Mutant
    chosen: frozenset[str]
    share: float
    killer: str = ""

    @property
    def safe(self) -> bool:
        """True if the requirement that killed the mutant is chosen."""
        return not self.killer or self.killer in self.chosen


class Gate:
    """The gate's choice for a change of one file of the bundled library."""

    def __init__(self, known: Map) -> None:
        self._map = known
        self._names = list(read_table(conformance_folder() / "requirements.toml"))
        self._groups = Counter(group.partition("[")[0] for group in _groups_of_level())

    def planted(self, mutant: Mutant, killer: str = "") -> Planted:
        """Return what the gate does with a mutant."""
        file = f"{planting.SOURCE.name}/{mutant.file}"
        text = planting.original(mutant.file)
        change = changed(digests_of(file, text), digests_of(file, mutant.applied(text)))
        # The map's own digests, so that nothing but the mutant differs from it.
        units = {**self._map.units, **dict.fromkeys(change, "mutated")}
        choice = choose(self._names, self._map, units, self._map.suite)
        chosen = frozenset(choice.reasons)
        run = sum(count for name, count in self._groups.items() if name in chosen)
        return Planted(mutant, chosen, run / sum(self._groups.values()), killer)


def killed(files: Iterable[Path]) -> Iterator[Result]:
    """Yield the killed mutants of the library's source in kill matrices, each once."""
    seen: set[str] = set()
    for path in files:
        for result in matrix.read(path).results:
            if result.verdict == KILLED and result.kind in KINDS and result.requirement and result.id not in seen:
                seen.add(result.id)
                yield result


def page(judged: Sequence[Planted], lost: int, every: Sequence[Planted], known: Map) -> str:
    """Return the page. ``lost``: killed mutants that no longer apply; ``every``: all mutants that exist."""
    unsafe = [one for one in judged if not one.safe]
    parts = sorted(one.share for one in every)
    nothing = sum(not one.chosen for one in every)
    quarters = statistics.quantiles(parts, n=4)
    lines = [
        "<!-- Written by python -m benchmarks.gate_selection. -->",
        "# Selection of the gate",
        "",
        "What [`iris-harness gate`](../gate.md) would run first for a wrong library, and whether that contains the",
        "requirement that killed it in a kill matrix, as [this one](mutants.md).",
        "",
        "| figure | value |",
        "| --- | --- |",
        f"| killed mutants of the library's source | {len(judged)} |",
        f"| of these, killed by a requirement that the gate chooses | {len(judged) - len(unsafe)} |",
        f"| killed mutants that no longer apply to the source | {lost} |",
        f"| mutants for which the choice was computed | {len(every):,} |",
        f"| groups of the level `{LEVEL}` that run first, mean | {statistics.mean(parts):.0%} |",
        f"| the same, quartiles | {quarters[0]:.0%}, {quarters[1]:.0%}, {quarters[2]:.0%} |",
        f"| mutants for which nothing is chosen | {nothing:,} |",
        f"| requirements in the map, of level `{known.run['level']}` | {len(known.requirements)} |",
        "",
        "Few requirements reach the code of one device operation, and all reach the memory of the host. Those that the",
        "map does not have are always chosen, and are counted.",
    ]
    if unsafe:
        lines += ["", "## Killed by a requirement that the gate does not choose", ""]
        lines += [f"- `{one.mutant.id}`: {one.killer}" for one in unsafe]
    if judged:
        lines += [
            "",
            "## Killed mutants",
            "",
            "| file | mutants | groups that run first, mean |",
            "| --- | --- | --- |",
        ]
        for file in sorted({one.mutant.file for one in judged}):
            inside = [one.share for one in judged if one.mutant.file == file]
            lines.append(f"| `{file}` | {len(inside)} | {statistics.mean(inside):.0%} |")
    return "\n".join([*lines, ""])


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the page; see the module."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("matrices", nargs="+", type=Path, help="kill matrices: matrix.json of iris-harness mutants run")
    parser.add_argument("--map", type=Path, default=reach.BUNDLED, help="map of what requirements reach")
    options = parser.parse_args(arguments)
    known = reach.read(options.map)
    gate = Gate(known)
    existing = {mutant.id: mutant for kind in KINDS for mutant in listing.all_of(kind)}
    results = list(killed(options.matrices))
    judged = [gate.planted(existing[one.id], one.requirement) for one in results if one.id in existing]
    every = [gate.planted(mutant) for mutant in existing.values()]
    print(page(judged, len(results) - len(judged), every, known), end="")
    return int(not all(one.safe for one in judged))


def _groups_of_level() -> frozenset[str]:
    path = installed_list(LEVEL)
    return parse_list(path.read_bytes(), str(path)).groups(PROFILE, API)


if __name__ == "__main__":
    sys.exit(main())
