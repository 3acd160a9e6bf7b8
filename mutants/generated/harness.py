"""Mutants of the harness itself: of its oracles, guards, comparisons, contracts, verdicts and plans.

The harness's own tests must kill them: ``TESTS`` names the tests of each file, chosen to take seconds.
"""

from __future__ import annotations

import ast
import functools
from collections.abc import Iterator, Mapping

from mutants import planting
from mutants.generated.places import Edit, Source, mutants_of
from mutants.mutant import HARNESS, Mutant

_PROTOCOL = ("tests/isa/test_protocol.py", "tests/isa/test_atomic_order.py", "tests/isa/test_contract.py")

TESTS: Mapping[str, tuple[str, ...]] = {
    # Oracles and comparison.
    "harness/oracles/heap.py": ("tests/oracles/test_heap.py", "tests/oracles/test_origin.py"),
    "harness/oracles/differences.py": ("tests/oracles/test_heap.py", "tests/oracles/test_origin.py"),
    "harness/oracles/reference.py": ("tests/oracles/test_reference.py",),
    "harness/oracles/rounding.py": ("tests/oracles/test_rounding.py",),
    "harness/oracles/linearise.py": ("tests/oracles/test_linearise.py",),
    "harness/oracles/perfetto.py": ("tests/oracles/test_perfetto.py",),
    # Inputs that make wrong elements visible, and sums exact.
    "harness/cases/payload.py": ("tests/cases/test_payload.py", "tests/cases/test_cases.py"),
    "harness/cases/contribution.py": ("tests/cases/test_contribution.py", "tests/cases/test_collective.py"),
    # What compiled code must look like.
    "harness/isa/expect.py": ("tests/isa/test_compiled.py", "tests/isa/test_recorded.py"),
    "harness/isa/protocol/order.py": _PROTOCOL,
    "harness/isa/protocol/atomics.py": _PROTOCOL,
    "harness/isa/protocol/spins.py": _PROTOCOL,
    "conformance/isa/contract.py": ("tests/isa/test_contract.py",),
    # The judgement of races.
    "harness/emulator/watch/race_order.py": (
        "tests/emulator/watch/test_race_order.py", "tests/emulator/watch/test_race_rules.py",
    ),
    "fixtures/races.py": ("tests/fixtures/test_races.py",),
    # Verdicts of cases and of requirements.
    "fixtures/outcome.py": ("tests/fixtures/test_outcome.py",),
    "fixtures/received.py": ("tests/fixtures/test_received.py",),
    "harness/evidence/verdict.py": ("tests/evidence/test_verdict.py",),
    "harness/evidence/waivers.py": ("tests/evidence/test_waivers.py",),
    "harness/evidence/evidence.py": (
        "tests/evidence/test_results.py", "tests/evidence/test_waivers.py", "tests/evidence/test_reading.py",
        "tests/evidence/test_integrity.py",
    ),
    # Checks of evidence.
    "harness/evidence/checks.py": ("tests/evidence/test_verdict.py", "tests/evidence/test_integrity.py"),
    "harness/evidence/chain.py": ("tests/evidence/test_integrity.py", "tests/evidence/test_store.py"),
    "harness/evidence/suite.py": ("tests/evidence/test_suite.py",),
    # Plans, and what a gate runs and decides.
    "fixtures/coverage.py": ("tests/fixtures/test_coverage.py",),
    "harness/evidence/mustpass.py": ("tests/evidence/test_mustpass.py", "tests/certificates/test_mustpass.py"),
    "command_line/gate/choose.py": ("tests/gate/test_choose.py",),
    "command_line/gate/judge.py": ("tests/gate/test_judge.py",),
}  # fmt: skip
"""Files of the harness that decide a verdict, with the tests that must notice a change of each, the nearest first."""

FOLDERS = frozenset(file.partition("/")[0] for file in TESTS)
"""The packages of these files."""

OPPOSITE = {
    ast.Eq: "!=", ast.NotEq: "==", ast.Lt: ">=", ast.GtE: "<", ast.Gt: "<=", ast.LtE: ">",
    ast.Is: "is not", ast.IsNot: "is", ast.In: "not in", ast.NotIn: "in",
}  # fmt: skip
EDGE = {ast.Lt: "<=", ast.LtE: "<", ast.Gt: ">=", ast.GtE: ">"}


def harness_mutants() -> list[Mutant]:
    """Return all generated mutants of the files in ``TESTS``."""
    mutants: list[Mutant] = []
    for file in TESTS:
        mutants += mutants_in(file, (planting.ROOT / file).read_text(encoding="utf-8"))
    return mutants


@functools.cache
def mutants_in(file: str, text: str) -> tuple[Mutant, ...]:
    """Return the mutants of one file: comparisons, conditions, raised errors, numbers, results, calls.

    Arguments of decorators stay, and ``strict`` of ``zip``: a class that is not frozen, a cache of another size or a
    sanity check the less judges the same.
    """
    source = Source(text)
    left_out = {inner for node in ast.walk(source.tree) for part in _idle(node) for inner in ast.walk(part)}
    nodes = ((node, names) for node, names in source.nodes() if names and node not in left_out)
    edits = ((edit, ".".join(names)) for node, names in nodes for edit in _edits(source, node))
    return tuple(mutants_of(HARNESS, file, source, edits))


def _edits(source: Source, node: ast.AST) -> Iterator[Edit]:
    if isinstance(node, ast.Compare) and len(node.ops) == 1:
        left, right = source.span(node.left)[1], source.span(node.comparators[0])[0]
        if "(" not in source.text[left:right] and ")" not in source.text[left:right]:
            for operator, table in (("comparison-opposite", OPPOSITE), ("comparison-edge", EDGE)):
                if (sign := table.get(type(node.ops[0]))) is not None:
                    yield Edit(operator, left, right, f" {sign} ")
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        yield Edit("condition-negated", *source.span(node), source.of(node.operand))
    elif isinstance(node, ast.BoolOp):
        operator, neutral = ("condition-and", "True") if isinstance(node.op, ast.And) else ("condition-or", "False")
        for value in node.values:
            yield Edit(operator, *source.span(value), neutral)
    elif isinstance(node, (ast.Raise, ast.AugAssign)) or (
        isinstance(node, ast.Expr) and isinstance(node.value, (ast.Call, ast.Yield)) and not _is_super(node.value)
    ):
        yield Edit("statement-removed", *source.span(node), "pass")
    elif isinstance(node, ast.Constant) and type(node.value) is int:
        yield Edit("number-next", *source.span(node), str(node.value + 1))
    elif isinstance(node, ast.Constant) and type(node.value) is bool:
        yield Edit("boolean-opposite", *source.span(node), str(not node.value))
    elif isinstance(node, ast.Return) and node.value is not None and source.of(node.value) != "None":
        yield Edit("result-none", *source.span(node.value), "None")


def _idle(node: ast.AST) -> list[ast.expr]:
    """Return the parts of a node that have no mutants."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "zip":
        return [keyword.value for keyword in node.keywords]
    return list(getattr(node, "decorator_list", ()))


def _is_super(node: ast.AST) -> bool:
    return "super" in ast.dump(node)
