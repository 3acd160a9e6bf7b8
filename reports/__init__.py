"""Views of evidence: causes and a table for the terminal, one HTML page, JUnit XML, public names by device, and the
comparison of two runs. They show the verdicts that the evidence holds and derive none of their own."""

from reports.benchmarks import Benchmark, read_benchmarks
from reports.capabilities import Offered, offered, print_capabilities
from reports.causes import Cause, causes_of, fences_of
from reports.compare import Comparison, compare
from reports.compare_views import comparison_html, comparison_markdown, print_comparison
from reports.html import render_html, write_html
from reports.junit import render_junit, write_junit
from reports.names import Names, markdown, names_of, print_names
from reports.table import print_table
from reports.view import Report, view_of

__all__ = [
    "Benchmark",
    "Cause",
    "Comparison",
    "Names",
    "Offered",
    "Report",
    "causes_of",
    "compare",
    "comparison_html",
    "comparison_markdown",
    "fences_of",
    "markdown",
    "names_of",
    "offered",
    "print_capabilities",
    "print_comparison",
    "print_names",
    "print_table",
    "read_benchmarks",
    "render_html",
    "render_junit",
    "view_of",
    "write_html",
    "write_junit",
]
