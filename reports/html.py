"""The report as one HTML file: one inline script, no external asset; all text is escaped, bounded and printable."""

from __future__ import annotations

import base64
import functools
import hashlib
from collections.abc import Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import Any

import jinja2
from markupsafe import Markup, escape

from harness.evidence import Evidence, Verdict
from harness.files import write_whole
from reports import gpus, plots, text
from reports.absent import by_reason
from reports.benchmarks import Benchmark
from reports.facets import anchor_of
from reports.kernels import KINDS, registers_of, spills_of
from reports.listings import marked
from reports.names import names_of
from reports.picture import picture_of
from reports.spec_links import published_documentation, section_link
from reports.view import LABELS, view_of

_SHAPES = {
    "pass": "\N{CHECK MARK}",
    "fail": "\N{MULTIPLICATION X}",
    "flaky": "\N{ALMOST EQUAL TO}",
    "unknown": "?",
    "not_run": "\N{EN DASH}",
    "quarantined": "\N{TILDE}",
    "waived": "\N{WHITE FLAG}",
    "unsupported": "\N{EMPTY SET}",
}
SYMBOLS = {verdict: _SHAPES.get(verdict.value, "\N{BULLET}") for verdict in Verdict}
_CHARACTERS = 20_000
_CAUSES, _FAILURES, _STACKS, _ENTRIES = 50, 100, 32, 1000
"""Limits of a page: causes, failing cases, stacks per case, entries per list. The evidence has the rest."""


def render_html(
    evidence: Evidence, listings: Mapping[str, str] | None = None, benchmarks: Sequence[Benchmark] = ()
) -> str:
    """Return the page as text. ``listings`` maps the hash of a kernel to its listing, for those that the page shows;
    ``benchmarks`` are results of the same library and machine, shown after the time of the cases."""
    report = view_of(evidence)
    script = _script()
    return page_of(
        "report.html.j2",
        report=report,
        cards={failure.case.id for failure in report.failures[:_FAILURES]},
        listings=listings or {},
        benchmarks=benchmarks,
        plot_width=plots.WIDTH,
        plot_height=plots.HEIGHT,
        plot_left=plots.LEFT,
        plot_right=plots.RIGHT,
        script=Markup(script),
        script_hash=hash_of(script),
        site=published_documentation(),
        names=names_of([evidence]),
        verdicts=list(Verdict),
        severity=sorted(Verdict, key=lambda verdict: verdict is Verdict.PASS),
        labels=LABELS,
        symbols=SYMBOLS,
        kinds=KINDS,
        max_causes=_CAUSES,
        max_failures=_FAILURES,
        max_stacks=_STACKS,
        max_entries=_ENTRIES,
    )


def hash_of(script: str) -> str:
    """Return the source by which a content security policy permits an inline script."""
    return f"sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}"


def page_of(template: str, **values: Any) -> str:
    """Return the page that a template of this package makes of ``values``."""
    return _environment().get_template(template).render(**values)


def write_html(
    evidence: Evidence,
    path: Path,
    listings: Mapping[str, str] | None = None,
    benchmarks: Sequence[Benchmark] = (),
) -> None:
    """Replace ``path`` atomically. Raises UsageError for a symbolic link, and OSError if the file cannot be written."""
    write_whole(path, render_html(evidence, listings, benchmarks))


@functools.cache
def _script() -> str:
    return (resources.files("reports") / "templates" / "report.js").read_text("utf-8")


@functools.cache
def _environment() -> jinja2.Environment:
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
        maximum=_maximum,
        sum_of=_sum_of,
        section_link=section_link,
        registers_of=registers_of,
        spills_of=spills_of,
        number=_number,
        lines=_lines,
        picture=picture_of,
        stacks_of=text.stacks_of,
        fields_of=text.fields_of,
        anchor_of=anchor_of,
        marked=marked,
        by_reason=by_reason,
        plots_of=plots.plots_of,
        bandwidth_text=plots.bandwidth,
        time_text=plots.time,
    )
    return environment


def _finalize(value: Any) -> Any:
    """Turn a value of the template into one printable line of bounded length; Jinja calls this for each value."""
    if isinstance(value, Markup) or not isinstance(value, str):
        return value
    return text.plain(text.cut(value, _CHARACTERS))


def _lines(value: str) -> Markup:
    """Return bounded, printable, escaped text that keeps its lines, for messages, faults and stacks."""
    return escape(text.plain(text.cut(value, _CHARACTERS), lines=True))


_NOTHING = "\N{EN DASH}"


def _gauge(gauges: Mapping[str, gpus.Range], name: str, unit: str, *more: str) -> str:
    """Return the range over these gauges, or a dash if none has a value."""
    ranges = [gauges[each] for each in (name, *more) if each in gauges]
    return gpus.span(ranges, unit) if ranges else _NOTHING


def _maximum(gauges: Mapping[str, gpus.Range], name: str, unit: str) -> str:
    return gpus.quantity(gauges[name][1], unit) if name in gauges else _NOTHING


def _sum_of(sums: Mapping[str, float], name: str, unit: str) -> str:
    return gpus.quantity(sums[name], unit) if name in sums else _NOTHING


def _number(number: int | None) -> str:
    return _NOTHING if number is None else str(number)
