"""What a case is: frozen plain data that the controller draws, a rank executes, and evidence keeps for an exact replay.

    case = from_json(record["case"])        # {"type": "TransferCase", "fields": {...}}
    record = to_json(case)

The dataclasses and payloads are imported on ranks; the Hypothesis strategies are in ``harness.cases.strategies``,
``tensor_strategies``, ``collective_strategies`` and ``fused_strategies``, which only the controller imports.
"""

from harness.cases.atomic import AtomicCase
from harness.cases.collective import (
    COLLECTIVES,
    LOW_LATENCY,
    REDUCTIONS,
    ROOTED,
    CollectiveCase,
    chunks_of,
    low_latency,
    members_of,
    shapes_of,
)
from harness.cases.contribution import REDUCE_OPS, contribution, reduce_ops, rough
from harness.cases.dtypes import ALL, FLOATS, FURTHER, INTEGERS, SOME, converted, of_name, size_of, vector_of
from harness.cases.fused import FusedCase
from harness.cases.heap import HeapCase
from harness.cases.payload import digits, payload, rounds_needed
from harness.cases.registry import case_type, from_json, to_json
from harness.cases.simple import HostCase, IsaCase, MessageCase
from harness.cases.tensor import TensorCase
from harness.cases.tile import TILE_MOVES, TILE_SUMS, TileCase
from harness.cases.tracing import TraceCase
from harness.cases.transfer import FORMS, MASKS, TransferCase, kept_lanes

__all__ = [
    "ALL", "COLLECTIVES", "FLOATS", "FORMS", "FURTHER", "INTEGERS", "LOW_LATENCY", "MASKS", "REDUCE_OPS", "REDUCTIONS",
    "ROOTED", "SOME", "TILE_MOVES", "TILE_SUMS", "AtomicCase", "CollectiveCase", "FusedCase", "HeapCase", "HostCase",
    "IsaCase", "MessageCase", "TensorCase", "TileCase", "TraceCase", "TransferCase", "case_type", "chunks_of",
    "contribution", "converted", "digits", "from_json", "kept_lanes", "low_latency", "members_of", "of_name", "payload",
    "reduce_ops", "rough", "rounds_needed", "shapes_of", "size_of", "to_json", "vector_of",
]  # fmt: skip
