"""Cases: frozen plain data that the controller draws, a rank executes, and evidence keeps for an exact replay.

    case = from_json(record["case"])        # {"type": "TransferCase", "fields": {...}}
    record = to_json(case)

A case type is defined with the tests of its subject, in a module that ranks import too; its Hypothesis strategies are
in a separate module, which only the controller imports. This package holds the common parts: the registry of case types
and their JSON form, element types, payloads, and, in ``harness.cases.strategies``, strategies for common fields.
"""

from harness.cases.contribution import REDUCE_OPS, contribution, reduce_ops, rough
from harness.cases.dtypes import ALL, FLOATS, FURTHER, INTEGERS, SOME, converted, of_name, size_of, vector_of
from harness.cases.groups import GROUPS, chunks_of, members_of
from harness.cases.payload import digits, payload, rounds_needed
from harness.cases.registry import case_type, data_of, defaults_of, from_json, to_json

__all__ = [
    "ALL", "FLOATS", "FURTHER", "GROUPS", "INTEGERS", "REDUCE_OPS", "SOME", "case_type", "chunks_of", "contribution",
    "converted", "data_of", "defaults_of", "digits", "from_json", "members_of", "of_name", "payload", "reduce_ops",
    "rough", "rounds_needed", "size_of", "to_json", "vector_of",
]  # fmt: skip
