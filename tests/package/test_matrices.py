"""Every described op is in every test matrix of the suite: no test lists ops by hand.

The test files of a folder are executed again with a scratch op in the folder's table.
"""

from __future__ import annotations

import ast
import dataclasses
import functools
import runpy
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from conformance.atomics.operations import ATOMICS
from conformance.collectives.operations import COLLECTIVES
from conformance.ops.operations import PRODUCTS
from conformance.rma.operations import TRANSFERS
from conformance.x.operations import TILES
from fixtures.requirement import ATTRIBUTE, Property
from harness.cases import to_json

SUITE = Path(__file__).resolve().parents[2] / "conformance"
NAME = "scratch"
RANKS = 4


@pytest.fixture(autouse=True)
def _caches_know_the_op() -> Iterator[None]:
    """Forget what the suite has computed from its tables, before the scratch op is there and after it is gone."""
    _clear_caches()
    yield
    _clear_caches()


def _clear_caches() -> None:
    for name, module in list(sys.modules.items()):
        if name.split(".")[0] == SUITE.name:
            for value in list(vars(module).values()):
                if isinstance(value, functools._lru_cache_wrapper):
                    value.cache_clear()


def properties_of(folder: Path) -> Iterator[Property]:
    """Execute the test files of a folder again and yield their tests."""
    for file in sorted(folder.glob("test_*.py")):
        values = runpy.run_path(str(file)).values()
        yield from (getattr(value, ATTRIBUTE) for value in values if hasattr(value, ATTRIBUTE))


def with_scratch(
    monkeypatch: pytest.MonkeyPatch, table: dict[str, Any], model: str, folder: Path, **changes: Any
) -> dict[str, list[Any]]:
    """Add an op like ``model`` to the table and return its cases in the folder's tests, by requirement.

    For a requirement with strategies the list is empty: no case is drawn.
    """
    scratch = dataclasses.replace(table[model], name=NAME, **changes)
    monkeypatch.setitem(table, NAME, scratch)
    cases_of: dict[str, list[Any]] = {}
    for held in properties_of(folder):
        if NAME in held.parameters.get("op", ()):
            cases = held.cases(RANKS, op=NAME)
        elif held.requirement == getattr(scratch, "requirement", None):
            [(name, values)] = held.parameters.items()
            cases = held.cases(RANKS, **{name: values[0]})
        elif set(held.parameters) or held.ranks > RANKS:
            continue
        else:
            cases = [case for case in held.cases(RANKS) if NAME in (getattr(case, "op", ""), *_arguments(case))]
            if not cases:
                continue
        cases_of[held.requirement] = (
            [case for case in _flat(cases) if dataclasses.is_dataclass(case)] if isinstance(cases, list) else []
        )
    return cases_of


def _flat(cases: list[Any]) -> list[Any]:
    """Return cases, or lists of them, as one list."""
    return [case for some in cases for case in (some if isinstance(some, list) else [some])]


def _arguments(case: Any) -> tuple[Any, ...]:
    """Return the arguments of a HostCase, which may contain the op's name."""
    return getattr(case, "arguments", ())


EVERY = {
    "CCL-SCRATCH-001", "CCL-CAPTURE-001", "CCL-GROUP-001", "CCL-ASYNC-001", "CCL-STREAM-001", "CCL-REFUSE-001",
    "CCL-REFUSE-002", "CCL-WAIT-001", "CCL-HELD-001", "CCL-STEPS-001", "CCL-ROOM-001", "CCL-WRAP-001",
    "CCL-LARGE-001", "CCL-RAGGED-001", "CCL-TURNS-001",
}  # fmt: skip
REDUCING = {"CCL-REPEAT-001", "CCL-NARROW-001"}
FURTHER = {*REDUCING, "CCL-STRIDES-001", "CCL-FAR-001"}


@pytest.mark.parametrize(
    ("model", "changes", "further"),
    [
        ("all_reduce", {}, FURTHER),
        ("all_gather", {}, FURTHER - REDUCING),
        ("reduce", {}, REDUCING),
        ("reduce", {"far": (("output", "gluon"),), "reached": ("input",)}, FURTHER),
        ("broadcast", {}, set()),
    ],
)
def test_a_collective_is_in_every_matrix(
    monkeypatch: pytest.MonkeyPatch, model: str, changes: dict[str, Any], further: set[str]
) -> None:
    changes["requirement"] = "CCL-SCRATCH-001"
    folder = SUITE / "collectives"
    cases_of = with_scratch(monkeypatch, COLLECTIVES, model, folder, **changes)
    protocol = {"CCL-PROTOCOL-001"} if COLLECTIVES[NAME].fast(RANKS) else set()
    assert set(cases_of) == EVERY | further | protocol
    fast = {
        requirement for requirement, cases in cases_of.items() if any("ll" in vars(case).values() for case in cases)
    }
    expected = {
        "CCL-CAPTURE-001",
        "CCL-STREAM-001",
        "CCL-WAIT-001",
        "CCL-HELD-001",
        "CCL-RAGGED-001",
        "CCL-STEPS-001",
        "CCL-ROOM-001",
        "CCL-TURNS-001",
        "CCL-WRAP-001",
        *protocol,
        *(further & {*REDUCING, "CCL-STRIDES-001"}),
    }
    assert fast == (expected if COLLECTIVES[NAME].fast(RANKS) else set())
    for requirement in ("CCL-CAPTURE-001", "CCL-HELD-001", "CCL-STEPS-001", "CCL-ROOM-001"):
        variants = {case.variant for case in cases_of[requirement]}
        assert variants == {variant.name for variant in COLLECTIVES[NAME].variants}, requirement
    assert all(to_json(case) for cases in cases_of.values() for case in cases)


def test_a_transfer_has_its_own_test_file_or_derived_tests(monkeypatch: pytest.MonkeyPatch) -> None:
    own = {path.stem.removeprefix("test_") for path in (SUITE / "rma").glob("test_*.py")}
    for op in TRANSFERS.values():
        assert (op.requirement is None) == (op.name in own), op.name
    monkeypatch.setitem(TRANSFERS, NAME, dataclasses.replace(TRANSFERS["get"], name=NAME, requirement="RMA-SCRATCH"))
    derived = runpy.run_path(str(SUITE / "rma" / "test_operations.py"))
    held = {getattr(value, ATTRIBUTE).requirement: name for name, value in derived.items() if hasattr(value, ATTRIBUTE)}
    assert held == {
        "RMA-SCRATCH-001": f"test_{NAME}",
        "RMA-SCRATCH-002": f"test_{NAME}_by_context",
        "RMA-SCRATCH-003": f"test_{NAME}_by_function",
    }


def test_a_fused_product_is_in_every_matrix(monkeypatch: pytest.MonkeyPatch) -> None:
    cases_of = with_scratch(monkeypatch, PRODUCTS, "matmul_all_reduce", SUITE / "ops", requirement="FUSED-SCRATCH-001")
    assert set(cases_of) == {
        "FUSED-SCRATCH-001", "FUSED-EDGES-001", "FUSED-REFUSED-001", "FUSED-REFUSED-002", "FUSED-CAPTURE-001",
        "FUSED-ROOM-001", "FUSED-HELD-001", "FUSED-STEPS-001", "FUSED-FAR-001", "FUSED-LARGE-001", "FUSED-RAGGED-001",
    }  # fmt: skip
    for requirement in ("FUSED-EDGES-001", "FUSED-CAPTURE-001", "FUSED-HELD-001", "FUSED-STEPS-001"):
        assert {case.variant for case in cases_of[requirement]} == set(PRODUCTS[NAME].variants)


@pytest.mark.parametrize(
    ("model", "matrices"),
    [
        ("all_to_all", {"X-MOVE-001", "X-WIDTH-001"}),
        ("all_reduce_two_shot", {"X-SUM-001", "X-SUM-002", "X-SAME-001", "X-ORDER-001"}),
        ("all_reduce_ring", {"X-SUM-001", "X-SAME-001", "X-WIDTH-001"}),
        ("all_reduce_atomic", {"X-SUM-001", "X-ORDER-001"}),
    ],
)
def test_a_tile_level_collective_is_in_every_matrix(
    monkeypatch: pytest.MonkeyPatch, model: str, matrices: set[str]
) -> None:
    assert set(with_scratch(monkeypatch, TILES, model, SUITE / "x")) == matrices


EVERY_TRANSFER = {
    "RMA-BOOL-001", "RMA-TILE-001", "RMA-CACHE-001", "RMA-CACHE-002", "RMA-CACHE-003", "ISA-WIDTH-001",
    "ISA-WIDTH-003", "ISA-WIDTH-004", "NEGATIVE-MASK-001", "NEGATIVE-HEAP-001",
}  # fmt: skip


@pytest.mark.parametrize("model", list(TRANSFERS))
def test_a_transfer_is_in_every_matrix(monkeypatch: pytest.MonkeyPatch, model: str) -> None:
    cases_of: dict[str, list[Any]] = {}
    for folder in ("rma", "isa", "negative"):
        cases_of |= with_scratch(monkeypatch, TRANSFERS, model, SUITE / folder)
    assert set(cases_of) == EVERY_TRANSFER
    op, modified = TRANSFERS[NAME], [case for n in (1, 2, 3) for case in cases_of[f"RMA-CACHE-00{n}"]]
    assert len({case.load_modifier for case in modified}) == (5 if op.loads else 1)
    assert len({case.store_modifier for case in modified}) == (6 if op.stores else 1)
    assert any(case.volatile for case in modified) == op.volatile


def test_an_atomic_is_in_every_matrix(monkeypatch: pytest.MonkeyPatch) -> None:
    assert set(with_scratch(monkeypatch, ATOMICS, "add", SUITE / "isa")) == {
        "ATOMIC-ORDER-001", "ATOMIC-ORDER-002", "ATOMIC-ORDER-003",
    }  # fmt: skip


def test_the_debug_build_and_far_offsets_are_tried_with_every_transfer(monkeypatch: pytest.MonkeyPatch) -> None:
    """Check the tests that loop over the tables inside a case."""
    from conformance.negative import test_debug_build
    from conformance.rma import test_far

    for table, model in ((TRANSFERS, "put"), (ATOMICS, "add")):
        monkeypatch.setitem(table, NAME, dataclasses.replace(table[model], name=NAME))
        assert table[NAME] in test_debug_build.ops(test_debug_build.OPS[1])
    assert NAME in test_far.results()


def ops_by_hand(file: Path, ops: set[str]) -> list[str]:
    """Return the ops that a file lists as values of a test's parameter ``op``, or with which it compares an op."""
    lines = []
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        parts: list[ast.AST] = []
        if isinstance(node, ast.keyword) and node.arg == "op" and isinstance(node.value, (ast.Tuple, ast.List)):
            parts = [node.value]
        elif isinstance(node, ast.Compare) and "op" in (*map(_last_name, (node.left, *node.comparators)),):
            parts = [node]
        texts = (each.value for part in parts for each in ast.walk(part) if isinstance(each, ast.Constant))
        lines += [f"{file.name}:{node.lineno}: {text}" for text in texts if text in ops]
    return lines


def _last_name(node: ast.AST) -> str:
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


@pytest.mark.parametrize(
    ("folder", "table"),
    [
        ("collectives", COLLECTIVES),
        ("ops", PRODUCTS),
        ("x", TILES),
        ("rma", TRANSFERS),
        ("negative", TRANSFERS | ATOMICS),
    ],
)
def test_no_test_names_an_op(folder: str, table: dict[str, Any]) -> None:
    assert [line for file in sorted((SUITE / folder).glob("*.py")) for line in ops_by_hand(file, set(table))] == []


def test_a_matrix_with_its_own_list_is_detected(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    planted = tmp_path / "test_planted.py"
    planted.write_text(
        "from fixtures.requirement import requirement\n\n\n"
        "def cases(ranks, op):\n    return [op] * (2 if op == 'broadcast' else 1)\n\n\n"
        "@requirement('CCL-PLANTED-001', cases=cases, op=('all_gather', 'broadcast'))\n"
        "def test_planted(check, case):\n    check(None, case)\n"
    )
    assert with_scratch(monkeypatch, COLLECTIVES, "all_gather", tmp_path, requirement="CCL-SCRATCH-001") == {}
    assert ops_by_hand(planted, set(COLLECTIVES)) == [
        "test_planted.py:8: all_gather", "test_planted.py:8: broadcast", "test_planted.py:5: broadcast",
    ]  # fmt: skip
