"""Views of evidence: a table for the terminal, one HTML page, JUnit XML. They show verdicts and derive none."""

from reports.html import render_html, write_html
from reports.junit import write_junit
from reports.table import print_table
from reports.view import Report, view_of

__all__ = ["Report", "print_table", "render_html", "view_of", "write_html", "write_junit"]
