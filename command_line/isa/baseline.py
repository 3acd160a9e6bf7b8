"""Baselines: the figures of all kernels with one release of Triton and for one target, as a file of JSON.

A line holds one call, so that the history of the file shows what changed.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from importlib.metadata import version
from pathlib import Path

import conformance.isa
from command_line.isa.compiled import Result
from conformance.isa.figures import Figures, changes
from harness.errors import UsageError
from harness.files import write_whole

FOLDER = Path(conformance.isa.__file__).parent / "baselines"
"""Those of the bundled library."""

Baseline = dict[str, list[Figures]]
"""Call -> figures of its kernels."""


def path_of(folder: Path, arch: str) -> Path:
    """Return the file of the installed Triton's baseline for a target."""
    return folder / f"triton-{version('triton')}" / f"{arch}.json"


def load(path: Path) -> Baseline | None:
    """Return a baseline, None if there is no such file. UsageError if it is not one."""
    try:
        plain = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise UsageError(f"{path}: no baseline can be read from it: {error}") from None
    if not isinstance(plain, dict) or not all(isinstance(kernels, list) for kernels in plain.values()):
        raise UsageError(f"{path}: expected a table of calls, as iris-harness isa accept writes it")
    return plain


def save(path: Path, results: Iterable[Result]) -> None:
    """Write the baseline of these results; other calls that the file has are kept."""
    calls = {**(load(path) or {}), **{result.call: result.kernels for result in results if not result.error}}
    lines = [f"{json.dumps(call)}: {json.dumps(calls[call], sort_keys=True)}" for call in sorted(calls)]
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, "{\n" + ",\n".join(lines) + "\n}\n")


def differences(baseline: Baseline, results: Iterable[Result]) -> Iterator[str]:
    """Yield what differs from the baseline: "all_reduce ring gluon, gfx942: ring_gluon: registers 52 -> 60"."""
    for result in results:
        if result.call not in baseline:
            yield f"{result.call}, {result.arch}: not in the baseline"
            continue
        for change in changes(baseline[result.call], result.kernels):
            yield f"{result.call}, {result.arch}: {change}"
