"""The report as one HTML file: no script, no external asset, everything escaped."""

from __future__ import annotations

import functools
from pathlib import Path

import jinja2

from harness.evidence import Evidence, Verdict
from reports import text
from reports.view import KINDS, LABELS, view_of

SYMBOLS = {
    Verdict.PASS: "\N{CHECK MARK}",
    Verdict.FAIL: "\N{MULTIPLICATION X}",
    Verdict.UNKNOWN: "?",
    Verdict.NOT_RUN: "\N{EN DASH}",
}


def render_html(evidence: Evidence) -> str:
    """The page as text."""
    return _template().render(
        report=view_of(evidence), verdicts=list(Verdict), labels=LABELS, symbols=SYMBOLS, kinds=KINDS
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
        widths=text.widths, duration=text.duration, shown=text.shown, moment=text.moment, plural=text.plural
    )
    return environment.get_template("report.html.j2")
