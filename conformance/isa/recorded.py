"""Requirements on compiled code, judged again from the listings of a case's kernels.

Each rule takes a case that passed, the kernels that it launched, and the run, and yields a clause for each thing that
the requirement does not allow. It compares what the test of the requirement compares, as far as a listing and the
record have it; the machine code of NVIDIA GPUs is in neither. The tests read code by the same functions of
``harness.isa`` and ``conformance.isa.targets``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from conformance.isa.contract import Code, Contract, broken, contracts
from conformance.isa.targets import (
    LOADS,
    PLAIN,
    STORES,
    WIDTH,
    barrier_order,
    bits_of,
    excused_order_faults,
    unhinted,
    wrong_bits,
)  # fmt: skip
from fixtures.implementation import BUNDLED
from harness.evidence import Case, Run
from harness.isa import protocol, remote_mismatch, remote_widths
from harness.isa.listed import ListedKernel
from harness.isa.record import Kind

Rule = Callable[[Case, Sequence[ListedKernel], Run], Iterator[str]]

COUNTING = ("emulated",)
"""Devices that count the accesses which a launch executes."""

FIXED_IN = (3, 8)
"""The release of Triton from which on code for AMD GPUs has the order of a compare-and-swap, and waits for the
write-back of a release."""

SIDES = {
    "put": ("local", "remote"), "store": ("", "remote"), "get": ("remote", "local"), "load": ("remote", ""),
    "copy": ("remote", "remote"),
}  # fmt: skip
"""Op of a transfer -> where it loads and where it stores; "": its modifier is not one of the call."""

TILES: Mapping[str, Kind] = {
    "all_gather_rows": "store", "all_gather_columns": "store", "all_to_all": "store", "gather": "load",
    "all_reduce_ring": "load",
}  # fmt: skip
"""Tile-level op -> the remote accesses that are wide."""
ONLY_EXECUTED = ("all_gather_columns",)
"""Ops whose code also has narrow accesses, for tiles that are not aligned."""
WITHOUT_LOCKS = ("all_reduce_atomic",)

TILE_KERNEL, PLAIN_KERNEL = "tile_kernel", "plain_load"
HINTED_KERNELS = ("by_context", "by_function")


def _width(kinds: tuple[Kind, ...], case: Case, kernels: Sequence[ListedKernel], run: Run) -> Iterator[str]:
    """Of the two sides of a copy only one is remote, so that either kind of access may be absent."""
    present = False
    for kernel in kernels:
        for kind in kinds:
            if kernel.code.widths("remote", kind) or kernel.code.widths("unattributed", kind):
                present = True
                if mismatch := remote_mismatch(kernel.code, kind, WIDTH):
                    yield f"in its listing {mismatch}"
    if not present:
        yield f"no listing of its kernels has a remote {' or '.join(kinds)}"
    yield from _executed(kinds, case, [*case.launches], run)


def _executed(kinds: tuple[Kind, ...], case: Case, hashes: Sequence[str], run: Run) -> Iterator[str]:
    widths = [
        (access["kind"], access["width"])
        for hash_ in hashes
        for access in case.launches.get(hash_, {}).get("accesses", ())
        if access["where"] == "remote" and access["kind"] in kinds and access["bytes"]
    ]
    for kind, width in widths:
        if width != WIDTH:
            yield f"executed a remote {kind} of {width} bytes"
    if run.device in COUNTING and not widths:
        yield f"executed no remote {' or '.join(kinds)}"


def _moved_by_transfer(case: Case, kernels: Sequence[ListedKernel], run: Run) -> Iterator[str]:
    """Each launch moves the payload of one rank to or from one peer."""
    fields, op = case.case["fields"], case.case["data"]["op"]
    loads, stores = (side == "remote" for side in SIDES[op])
    kind = "store" if stores and (not loads or fields["direction"] == "to") else "load"
    pairs = [(rank, peer) for rank, peers in enumerate(fields["targets"]) for peer in peers]
    remote = sum(rank != peer for rank, peer in pairs)
    yield from _moved(case, run, kind, remote * fields["n"] * _bytes_of(fields["dtype"]), len(pairs))


def _moved_by_gather(case: Case, kernels: Sequence[ListedKernel], run: Run) -> Iterator[str]:
    """Each rank's launch stores its rows to all others."""
    fields, ranks = case.case["fields"], ranks_of(case)
    each = fields["m"] * fields["n"] * _bytes_of(fields["dtype"])
    yield from _moved(case, run, "store", ranks * (ranks - 1) * each, ranks)


def _moved(case: Case, run: Run, kind: Kind, expected: int, launches: int) -> Iterator[str]:
    """Yield a clause unless the remote accesses of ``kind`` moved ``expected`` bytes for each ``launches`` launches: a
    payload of few bits takes several rounds."""
    if run.device not in COUNTING:
        return
    launched = sum(launch["launches"] for launch in case.launches.values())
    moved = sum(
        access["bytes"]
        for launch in case.launches.values()
        for access in launch["accesses"]
        if access["where"] == "remote" and access["kind"] == kind
    )
    rounds, rest = divmod(launched, launches)
    if rest:
        yield f"launched {launched} kernels, which is not a multiple of {launches}, the number of its calls"
    elif moved != expected * rounds:
        yield f"moved {moved:,} bytes by remote {kind}s, and its payload is {expected * rounds:,}"


def _bytes_of(dtype: str) -> int:
    """Return the bytes of an element from its type's name: the cases of these requirements have no other types."""
    bits = re.search(r"\d+", dtype)
    if bits is None:
        raise ValueError(f"the element type {dtype!r:.40} has no number of bits in its name")
    return int(bits[0]) // 8


def ranks_of(case: Case) -> int:
    """Return the world size in the name of a case's group."""
    match = re.search(r"\[ranks=(\d{1,6})[,\]]", case.group)
    if match is None:
        raise ValueError(f"the group {case.group:.60} names no world size")
    return int(match[1])


def _hinted(case: Case, kernels: Sequence[ListedKernel], run: Run) -> Iterator[str]:
    for kernel in _of_names(kernels, *HINTED_KERNELS):
        if single := unhinted(kernel.code):
            yield f"the listing of {kernel.name} has {single} instead of atomics of 4 bytes"


def _contract(case: Case, kernels: Sequence[ListedKernel], run: Run) -> Iterator[str]:
    contract = contract_of(case.case["fields"]["call"])
    texts = [(each, each.text()) for each in kernels]
    codes = [Code(each.name, each.code, protocol.read(text, each.roots), text) for each, text in texts]
    for line in broken(contract, codes, run.implementation["name"] == BUNDLED):
        yield f"breaks the contract of {contract.name}: {line}"


def contract_of(call: str) -> Contract:
    """Return the contract of a call of the catalogue: it has the name of the call, or that without the language."""
    return contracts().get(call) or contracts()[call.rpartition(" ")[0]]


def _order(case: Case, kernels: Sequence[ListedKernel], run: Run) -> Iterator[str]:
    fields = case.case["fields"]
    version = _triton(run)
    older = bool(version) and version < FIXED_IN
    for kernel in kernels:
        for part, seen, wanted in excused_order_faults(
            kernel.code, kernel.text(), fields["op"], fields["sem"], fields["scope"],
            ignores_cas=lambda: older, does_not_wait=lambda: older,
        ):  # fmt: skip
            yield f"{part} of {kernel.name} is {seen}, wanted {wanted}"


def _triton(run: Run) -> tuple[int, ...]:
    version = str(run.environment.get("packages", {}).get("triton"))
    return tuple(map(int, re.findall(r"\d+", version)[:2]))


def _barrier(case: Case, kernels: Sequence[ListedKernel], run: Run) -> Iterator[str]:
    """The kernels of a device barrier order memory together. Those of another library may have launched others besides,
    whose atomics may be narrower."""
    for part, fine in barrier_order([each.code for each in kernels]).items():
        if not fine and (len(kernels) == 1 or part != "system scope alone"):
            yield f"the listings of its kernels lack: {part}"


def _tile_order(case: Case, kernels: Sequence[ListedKernel], run: Run) -> Iterator[str]:
    op = case.case["fields"]["op"]
    for kernel in _of_names(kernels, TILE_KERNEL):
        for part, fine in barrier_order([kernel.code]).items():
            if not fine and (op not in WITHOUT_LOCKS or part == "system scope alone"):
                yield f"the listing of {kernel.name} lacks: {part}"


def _tile_width(case: Case, kernels: Sequence[ListedKernel], run: Run) -> Iterator[str]:
    op = case.case["fields"]["op"]
    kind = TILES[op]
    for kernel in _of_names(kernels, TILE_KERNEL):
        if op in ONLY_EXECUTED:
            mismatch = None if WIDTH in remote_widths(kernel.code, kind) else f"no remote {kind} is {WIDTH} bytes wide"
        else:
            mismatch = remote_mismatch(kernel.code, kind, WIDTH)
        if mismatch:
            yield f"in the listing of {kernel.name} {mismatch}"
    yield from _executed((kind,), case, [each.hash for each in _of_names(kernels, TILE_KERNEL)], run)


def _modifiers(case: Case, kernels: Sequence[ListedKernel], run: Run) -> Iterator[str]:
    fields = case.case["fields"]
    loads, stores = SIDES[case.case["data"]["op"]]
    load = "volatile" if fields["volatile"] else fields["load_modifier"]
    plain = {bits for each in kernels if each.name == PLAIN_KERNEL for bits in bits_of(each.code, "load", None, WIDTH)}
    for kernel in (each for each in kernels if each.name != PLAIN_KERNEL):
        wanted: list[tuple[str, str, Any]] = []
        if loads:
            words: Any = LOADS[kernel.code.language].get(load, ())
            if words is PLAIN:
                if len(plain) != 1:
                    yield f"no kernel of it shows the words of a plain load with the modifier {load!r}"
                    continue
                [words] = plain
            wanted.append(("load", loads, words))
        if stores:
            wanted.append(("store", stores, STORES[kernel.code.language].get(fields["store_modifier"], ())))
        for kind, where, words in wanted:
            if (got := wrong_bits(kernel.code, kind, where, words)) is not None:
                yield f"the {where} {kind}s in the listing of {kernel.name} have the cache words {got}, wanted {words}"


def _tracing(case: Case, kernels: Sequence[ListedKernel], run: Run) -> Iterator[str]:
    """A kernel without calls, the same with calls compiled without tracing, and compiled with tracing."""
    plain = [each.code for each in kernels if each.name.endswith("_plain")]
    traced = [each.code for each in kernels if each.name.endswith("_traced")]
    if not plain or {each.sha256 for each in plain} - {each.sha256 for each in traced}:
        yield "no kernel with calls to record events has the code of the kernel without them"
    orders = {str((each.writebacks, each.invalidates, each.fences)) for each in (*plain, *traced)}
    if len(orders) > 1:
        yield "its kernels order memory in different ways, with tracing and without"


def _of_names(kernels: Sequence[ListedKernel], *names: str) -> Iterator[ListedKernel]:
    chosen = [each for each in kernels if each.name in names]
    if not chosen:
        raise ValueError(f"none of its kernels is {' or '.join(names)}")
    yield from chosen


WIDTHS: Mapping[str, Rule] = {
    "ISA-WIDTH-001": partial(_width, ("load", "store")),
    "ISA-WIDTH-002": partial(_width, ("store",)),
}
"""Rules that read no field of a case, so that they hold for cases of any suite. Forms have the rule of their
requirement."""

MOVED: Mapping[str, Rule] = {"ISA-WIDTH-001": _moved_by_transfer, "ISA-WIDTH-002": _moved_by_gather}
"""Rules about the exact number of bytes that moved, on devices that count them."""

RULES: Mapping[str, Rule] = {
    **WIDTHS,
    "ISA-WIDTH-005": _hinted,
    "ISA-CONTRACT-001": _contract,
    "ATOMIC-ORDER-001": _order,
    "HOST-DEVICE-BARRIER-004": _barrier,
    "X-ORDER-001": _tile_order,
    "X-WIDTH-001": _tile_width,
    "RMA-CACHE-001": _modifiers,
    "TRACE-COST-001": _tracing,
}
