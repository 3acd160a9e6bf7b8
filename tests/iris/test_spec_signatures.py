"""Every signature that docs/spec prints has the parameters of the tables by which the library is judged.

The tables are ``published_signatures.toml`` and ``SIGNATURES`` of test_published_api. Functions that only the bundled
library has (docs/spec/extensions.md), and its parameters after the published ones, are read from its code, which other
tests compare with the tables.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import re
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.iris.test_published_api import LINES, parsed
from tests.iris.test_published_signatures import PUBLISHED, owner_of, written

PAGES = Path(__file__).resolve().parents[2] / "docs" / "spec"

#: Pages of this project's own interfaces, which no table of the Iris API has.
OTHER_INTERFACES = {"adapters.md", "providers.md"}

#: Modules and classes whose functions the pages print.
OWNERS = (
    "iris", "iris.Iris", "iris.ccl", "iris.ccl.instance.InstanceCollectives", "iris.ccl.work.Work", "iris.ops",
    "iris.ops.FusedConfig", "iris.ops.FusedWorkspace", "iris.ops.instance.InstanceOps", "iris.x", "iris.x.TensorView",
    "iris.x.Tile", "iris.hip", "iris.hip.hipMemLocation", "iris.hip.hipMemAccessDesc", "iris.host.memory",
    "iris.host.memory.SymmetricHeap", "iris.host.memory.BaseAllocator", "iris.host.distributed.fd_passing",
    "iris.host.distributed.helpers", "iris.host.distributed.topology", "iris.host.distributed.topology.TopologyMap",
    "iris.drivers.base", "iris.drivers.base.BaseFabricDriver", "iris.drivers.fabric",
    "iris.host.logging.logging.IrisFormatter",
)  # fmt: skip

#: Printed calls that are not signatures of functions: a formula, a conversion, a user's function, constructors of
#: ctypes and of an enumeration, and ``randint``, whose two forms are one ``*bounds_and_size``.
NOT_SIGNATURES = {"min", "int", "fn", "randint", "hipMemLocation", "hipMemAccessDesc", "TraceEvent"}

#: Part of a printed name before the last dot -> the owner's name.
QUALIFIERS = {
    "ccl": "InstanceCollectives",
    "ops": "InstanceOps",
    "instance": "Iris",
    "bench": "bench",
    "heap": "SymmetricHeap",
}
ATOMICS = ("add", "sub", "xchg", "xor", "and", "or", "min", "max")
Parameters = list[tuple[str, str | None]]


@dataclass(frozen=True)
class Printed:
    """A signature on a page: ``parameters`` are its names and printed defaults; ``open`` if it has ``...``."""

    owner: str
    name: str
    parameters: tuple[tuple[str, str | None], ...]
    open: bool


def plain(default: str) -> str:
    """Return a default in a form that does not depend on how it is written."""
    text = default.strip()
    power = re.fullmatch(r"(\d+)\*\*(\d+)", text)
    if power:
        return str(int(power[1]) ** int(power[2]))
    try:
        return str(ast.literal_eval(text))
    except (ValueError, SyntaxError):
        return text.removeprefix("torch.")


def split(text: str) -> tuple[Parameters, bool]:
    """Return the parameters of a printed list, and whether ``...`` leaves some out."""
    parameters: Parameters = []
    parts = [part.strip() for part in text.split(",") if part.strip()]
    for part in parts:
        if part not in ("...", "*"):
            declared, has_default, default = part.partition("=")
            parameters.append((declared.partition(":")[0].strip(" *"), plain(default) if has_default else None))
    return parameters, "..." in parts


def printed(page: str) -> Iterator[Printed]:
    """Yield the signatures of a page: calls in code spans, and table rows of names and one list of parameters."""
    for match in re.finditer(r"`([\w.]+)\(([^`]*)\)(?: -> \w+)?`", page):
        owner, _, name = match[1].rpartition(".")
        parameters, is_open = split(" ".join(match[2].split()))
        for each in [f"atomic_{atomic}" for atomic in ATOMICS] if name == "atomic_X" else [name]:
            yield Printed(owner.rpartition(".")[2], each, tuple(parameters), is_open)
    for names, text in re.findall(r"^\| ((?:`\w+`(?:, )?)+) \| `\(([^`]*)\)` \|$", page, re.MULTILINE):
        parameters, is_open = split(text)
        first, *others = re.findall(r"\w+", names)
        for each in (first, *(f"atomic_{other}" for other in others)):
            yield Printed("iris", each, tuple(parameters), is_open)


def tables() -> dict[str, list[tuple[str, Parameters]]]:
    """Return name -> (last part of the owner's name, parameters) of every signature that is known."""
    known: dict[str, list[tuple[str, Parameters]]] = defaultdict(list)
    for owner, functions in PUBLISHED.items():
        for name, text in functions.items():
            known[name].append((owner.rpartition(".")[2], [each for each in split(text)[0] if each[0] != "self"]))
    for name, text in LINES:
        owner, _, last = ("iris." + name).rpartition(".")
        known[last].append((owner.rpartition(".")[2], of_function(parsed(text))))
    for path in OWNERS:
        owner = owner_of(path)
        for name, function in inspect.getmembers(owner, callable):
            if not name.startswith("_"):
                if hasattr(function, "__triton_aggregate__"):
                    function = function.hash_attrs[0]  # its constructor: Triton 3.6 keeps no annotations
                try:
                    signature = inspect.signature(getattr(function, "fn", function))
                except (TypeError, ValueError):
                    continue  # a class of ctypes or NumPy
                members = [p for p in signature.parameters.values() if p.name not in ("self", "cls")]
                known[name].append((path.rpartition(".")[2], of_function(members)))
    known["do_bench"].append(("bench", of_function(inspect.signature(owner_of("iris").do_bench).parameters.values())))
    return known


def of_function(parameters) -> Parameters:
    """Return the names and defaults of a function's parameters."""
    return [(p.name, None if p.default is p.empty else plain(written(p.default))) for p in parameters]


def fits(signature: Printed, parameters: Parameters) -> bool:
    """Return whether the printed names are among the parameters in their order, with their defaults if any are printed,
    and whether, without ``...``, no parameter without default is missing."""
    rest = iter(parameters)
    for name, default in signature.parameters:
        own = next((own for own in rest if own[0] == name), None)
        if own is None or (default is not None and own[1] != default and not (own[1] or "").startswith("<function")):
            return False
    names = {name for name, _ in signature.parameters}
    return signature.open or all(default is not None or name in names for name, default in parameters)


def wrong(page: str, known: dict[str, list[tuple[str, Parameters]]]) -> list[str]:
    """Return the signatures of a page that no entry of their name has."""
    problems = []
    for signature in printed(page):
        if signature.name in NOT_SIGNATURES:
            continue
        entries = known.get(signature.name, [])
        owner = QUALIFIERS.get(signature.owner, signature.owner)
        entries = [entry for entry in entries if entry[0] == owner] or entries
        if not any(fits(signature, parameters) for _, parameters in entries):
            problems.append(f"{signature.name}{signature.parameters}, known is {entries}")
    return problems


@pytest.fixture(scope="module")
def known():
    importlib.import_module("iris_under_test.gluon")
    return tables()


@pytest.mark.parametrize("page", sorted(PAGES.glob("*.md")), ids=lambda page: page.stem)
def test_printed_signatures_are_those_of_the_tables(page, known):
    if page.name not in OTHER_INTERFACES:
        assert wrong(page.read_text("utf-8"), known) == []


def test_signatures_are_found():
    every = [each for page in PAGES.glob("*.md") for each in printed(page.read_text("utf-8"))]
    assert len(every) > 150
    assert {"distributed_allgather", "all_gather", "put", "atomic_min", "matmul_all_reduce"} <= {
        each.name for each in every
    }


@pytest.mark.parametrize(
    ("text", "is_right"),
    [
        ("`distributed_allgather(data)`", True),
        ("`distributed_allgather(array)`", False),
        ("`distributed_broadcast_scalar(value=None, root=0)`", True),
        ("`distributed_broadcast_scalar(value, src=0)`", False),
        ("`distributed_broadcast_scalar(value=None, root=1)`", False),
        ("`iris.ccl.utils.extract_group_info(group, iris_instance)`", True),
        ("`extract_group_info(group, num_ranks, rank)`", False),
        ("`instance.ccl.all_gather(output_tensor, input_tensor, group=None, ...)`", True),
        ("`instance.ccl.all_gather(output, input, group=None, ...)`", False),
        ("`put(from_ptr, to_ptr, ...)`", True),
        ("`put(from_ptr, to_ptr)`", False),
        ("`no_such_function(data)`", False),
        ("`instance.ops.matmul_all_reduce(C, A, B, async_op=False, bias=None)`", False),
        ("| `atomic_add`, `xchg` | `(pointer, val, from_rank, to_rank, heap_bases, mask=None)` |", True),
        ("| `atomic_add`, `xchg` | `(pointer, value, from_rank, to_rank, heap_bases, mask=None)` |", False),
    ],
)
def test_a_planted_wrong_name_is_rejected(text, is_right, known):
    assert (wrong(text, known) == []) == is_right
