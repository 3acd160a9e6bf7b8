"""Evidence of a run: what ran, on which device, with which result. Verdicts, reports and gates are read only from it.

It is one file with one JSON object per line. Every line has ``"schema": 2``, its kind in ``"record"``, and its position
in the file's hash chain. ``Store`` writes the file and ``read`` reads it. Records are frozen dataclasses of plain data;
``schema.json`` next to this file is their published form.
"""

from harness.evidence.circumstances import harness_state, plain_arguments, relevant_variables
from harness.evidence.environment import capture_environment, commit_of, digest_of, sources_of
from harness.evidence.evidence import Evidence, RequirementResult
from harness.evidence.lines import parse
from harness.evidence.reading import read
from harness.evidence.records import (
    APART,
    APIS,
    EXTENDED,
    JUDGES,
    MISSING,
    NO_PROFILE,
    ONE_PROCESS,
    PUBLISHED,
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
from harness.evidence.table import extended_names, read_table
from harness.evidence.verdict import Verdict, merge
from harness.evidence.words import fence_in_words, in_words, origin_in_words, wait_in_words

__all__ = [
    "APART",
    "APIS",
    "EXTENDED",
    "JUDGES",
    "MISSING",
    "NO_PROFILE",
    "ONE_PROCESS",
    "PUBLISHED",
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
    "digest_of",
    "extended_names",
    "fence_in_words",
    "harness_state",
    "in_words",
    "merge",
    "origin_in_words",
    "parse",
    "plain_arguments",
    "read",
    "read_table",
    "relevant_variables",
    "sources_of",
    "wait_in_words",
    "worker_path",
]
