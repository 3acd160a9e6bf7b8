"""Evidence of a large run, for tests of what readers and browsers can handle."""

from __future__ import annotations

from pathlib import Path

from harness.evidence import Case, Evidence, Group, Kernel, PlannedGroup, Record, Requirement, Verdict, read
from harness.evidence.chain import Chain
from tests.evidence import samples

AREAS = ("RMA", "ATOMIC", "CCL", "ORDER", "FUSED", "HOST", "ISA", "TILE", "TRACE", "NEGATIVE")
DTYPES = ("int8", "int32", "int64", "fp16", "bf16", "fp32")
