"""Evidence: what ran, on what, and what came of it. The only thing that verdicts, reports and gates are read from.

One file, one JSON object per line, every line with ``"schema": 1`` and its kind in ``"record"``. ``Store`` writes it,
``read`` reads it back. Records are frozen dataclasses of plain data; ``schema.json`` beside this file is their
published form.
"""

from harness.evidence.environment import capture_environment, commit_of
from harness.evidence.evidence import Evidence, RequirementResult
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
from harness.evidence.store import Store, worker_path
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
    "commit_of",
    "merge",
    "read",
    "worker_path",
]
