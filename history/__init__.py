"""History of runs: verdicts, times, compiled code, benchmarks and telemetry of many nights in one SQLite file.

database.py  opens a history and migrates it       adding.py   evidence and benchmarks in
merging.py   several histories into one; exports   nights.py   nights, their changes, first bad nights, flaky groups
series.py    one number over the nights            trends.py   change points and drift of a series
dashboard.py the static site
"""

from history.adding import Origin, Soak, add, add_soak
from history.database import VERSION, History
from history.merging import export_csv, export_json, merge
from history.nights import Changes, FirstBad, Flaky, changes, first_bad, flaky, last_ran, names, nights, nodes
from history.series import Point, Series, metrics, series
from history.trends import Trend, trend

__all__ = [
    "VERSION",
    "Changes",
    "FirstBad",
    "Flaky",
    "History",
    "Origin",
    "Point",
    "Series",
    "Soak",
    "Trend",
    "add",
    "add_soak",
    "changes",
    "export_csv",
    "export_json",
    "first_bad",
    "flaky",
    "last_ran",
    "merge",
    "metrics",
    "names",
    "nights",
    "nodes",
    "series",
    "trend",
]
