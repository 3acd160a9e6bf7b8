"""The report as one HTML file: no script, no external asset, everything escaped."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from pathlib import Path

import jinja2

from harness.evidence import Evidence, Verdict
from reports import gpus, text
from reports.names import names_of
from reports.view import KINDS, LABELS, registers_of, spills_of, view_of

SYMBOLS = {
    Verdict.PASS: "\N{CHECK MARK}",
    Verdict.FAIL: "\N{MULTIPLICATION X}",
    Verdict.UNKNOWN: "?",
    Verdict.NOT_RUN: "\N{EN DASH}",
}


def render_html(evidence: Evidence) -> str:
    """The page as text."""
    return _template().render(
        report=view_of(evidence),
        names=names_of([evidence]),
        verdicts=list(Verdict),
        labels=LABELS,
        symbols=SYMBOLS,
        kinds=KINDS,
    )


def write_html(evidence: Evidence, path: Path) -> None:
    """Write the page to ``path``, UTF-8."""
    path.write_text(render_html(evidence), encoding="utf-8", errors="backslashreplace")


@functools.cache
def _template() -> jinja2.Template:
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("reports"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
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
    )
    return environment.get_template("report.html.j2")


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
