"""Evidence: what ran, on what, and with which result. The only thing that verdicts, reports and gates are read from.

One file, one JSON object per line, every line with ``"schema": 2``, its kind in ``"record"``, and its place in the
file's hash chain. ``Store`` writes it, ``read`` reads it back. Records are frozen dataclasses of plain data;
``schema.json`` beside this file is their published form.
"""

from harness.evidence.circumstances import harness_state, plain_arguments, relevant_variables
from harness.evidence.environment import capture_environment, commit_of, sources_of
from harness.evidence.evidence import Evidence, RequirementResult
from harness.evidence.lines import parse
from harness.evidence.reading import read
from harness.evidence.records import (
    SCHEMA,
    Case,
    Difference,
    End,
    Group,
    Hardware,
    Kernel,
    Plan,
    PlannedGroup,
    Record,
    Requirement,
    Run,
    Telemetry,
    case_id,
)
from harness.evidence.store import Store, check_unused, worker_path
from harness.evidence.verdict import Verdict, merge

__all__ = [
    "SCHEMA",
    "Case",
    "Difference",
    "End",
    "Evidence",
    "Group",
    "Hardware",
    "Kernel",
    "Plan",
    "PlannedGroup",
    "Record",
    "Requirement",
    "RequirementResult",
    "Run",
    "Store",
    "Telemetry",
    "Verdict",
    "capture_environment",
    "case_id",
    "check_unused",
    "commit_of",
    "harness_state",
    "merge",
    "parse",
    "plain_arguments",
    "read",
    "relevant_variables",
    "sources_of",
    "worker_path",
]
