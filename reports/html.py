"""The report as one HTML file: no script, no external asset, everything escaped, bounded and printable."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jinja2
from markupsafe import Markup, escape

from harness.evidence import Evidence, Verdict
from harness.files import write_whole
from reports import gpus, text
from reports.names import names_of
from reports.view import KINDS, LABELS, registers_of, spills_of, view_of

SYMBOLS = {
    Verdict.PASS: "\N{CHECK MARK}",
    Verdict.FAIL: "\N{MULTIPLICATION X}",
    Verdict.UNKNOWN: "?",
    Verdict.NOT_RUN: "\N{EN DASH}",
}
_CHARACTERS = 20_000
_FAILURES, _STACKS, _ENTRIES = 100, 32, 1000
"""Most failing cases, stacks of each, and entries of a list on a page: beyond that, the evidence has the rest."""


def render_html(evidence: Evidence) -> str:
    """The page as text."""
    return _template().render(
        report=view_of(evidence),
        names=names_of([evidence]),
        verdicts=list(Verdict),
        labels=LABELS,
        symbols=SYMBOLS,
        kinds=KINDS,
        most_failures=_FAILURES,
        most_stacks=_STACKS,
        most_entries=_ENTRIES,
    )


def write_html(evidence: Evidence, path: Path) -> None:
    """Replace ``path`` in one step. Raises UsageError for a symbolic link, and OSError as the file system does."""
    write_whole(path, render_html(evidence))


@functools.cache
def _template() -> jinja2.Template:
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("reports"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        finalize=_finalize,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(
        widths=text.widths,
        duration=text.duration,
        shown=text.shown,
        moment=text.moment,
        plural=text.plural,
        gauge=_gauge,
        most=_most,
        sum_of=_sum_of,
        registers_of=registers_of,
        spills_of=spills_of,
        told=_told,
        lines=_lines,
        fields_of=text.fields_of,
        replay_of=text.replay_of,
    )
    return environment.get_template("report.html.j2")


def _finalize(value: Any) -> Any:
    """Every value that the template shows comes through here: one printable line, of bounded length."""
    if isinstance(value, Markup) or not isinstance(value, str):
        return value
    return text.plain(text.cut(value, _CHARACTERS))


def _lines(value: str) -> Markup:
    """The same for text that has lines: messages, faults, stacks."""
    return escape(text.plain(text.cut(value, _CHARACTERS), lines=True))


_NOTHING = "\N{EN DASH}"


def _gauge(gauges: Mapping[str, gpus.Range], name: str, unit: str, *more: str) -> str:
    """Least to greatest over these gauges; a dash where none has a value."""
    found = [gauges[each] for each in (name, *more) if each in gauges]
    return gpus.span(found, unit) if found else _NOTHING


def _most(gauges: Mapping[str, gpus.Range], name: str, unit: str) -> str:
    return gpus.quantity(gauges[name][1], unit) if name in gauges else _NOTHING


def _sum_of(sums: Mapping[str, float], name: str, unit: str) -> str:
    return gpus.quantity(sums[name], unit) if name in sums else _NOTHING


def _told(number: int | None) -> str:
    return _NOTHING if number is None else str(number)
