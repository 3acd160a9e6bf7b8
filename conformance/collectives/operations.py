"""Descriptions of the collectives. Every test matrix of the suite is derived from them.

To add a collective, describe it here and add its requirement to ``requirements.toml``: ``test_operations.py`` then
draws cases of it, and the files that test one property (groups, handles, graphs, refusals, strides, far addresses and
so on) include it if its description has the property. No test file lists ops by name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import torch
import torch.distributed as dist

from conformance.collectives import shares
from conformance.collectives.cases import CollectiveCase
from fixtures import judged
from harness.cases import ALL
from harness.oracles import broadcast, gathered, reduced, scattered, swapped

Shape = tuple[int, int]

ALWAYS, SOMETIMES, NEVER = "always", "sometimes", "never"

LOW_LATENCY_MEMBERS = 8
"""Largest group for which the low-latency protocol is drawn: the GPUs of one node. A library may refuse larger ones."""


LARGE_TILE = {"block_m": 32, "block_n": 128, "warps": 16}
"""A tile of bytes with one word for each lane of the largest work-group."""
SMALL_TILE = {"block_m": 4, "block_n": 64, "warps": 2}
"""A tile of bytes of which hundreds of programs need little memory."""
BYTE_TILES = {("one_shot", "ll"): LARGE_TILE, ("ring", ""): SMALL_TILE}
"""Tiles of maxima of uint8 by variant of all_reduce and protocol, so that several requirements use one kernel."""


@dataclass(frozen=True)
class Kernel:
    """The values with which a drawn case's kernel is compiled."""

    block_m: int = 8
    block_n: int = 64
    warps: int = 1
    gluon: bool = False
    variant: str = ""
    default: bool = False
    swizzle: int = 4
    protocol: str = ""


KERNELS = (Kernel(), Kernel(gluon=True, swizzle=1), Kernel(4, 128, 4), Kernel(32, 64, 4, default=True))

FAR = (("output", "gluon"), ("input", "triton"))
"""Sides of an op that are tested at far addresses, and the language of the kernel."""


@dataclass(frozen=True)
class Variant:
    """One algorithm of an op; an empty name is Config's default.

    ``reached``: the tensors of a member that other members read or write, if they differ from the op's ``reached``.
    ``low_latency``: it has a protocol for small sizes. ``same_bits``: equal floats always give equal bits, and 16-bit
    floats are reduced in float32 and rounded once. ``far``: it has its own kernel, which is also tested at far
    addresses, with "rows" far apart, "columns", or each of them.
    """

    name: str = ""
    reached: tuple[str, ...] | None = None
    low_latency: bool = False
    same_bits: bool = True
    far: tuple[str, ...] = ()


@dataclass(frozen=True)
class Inputs:
    """Arguments of the oracle: this member's input and the call's reduction, root (a global rank) and group."""

    mine: torch.Tensor
    reduce: str = "sum"
    root: int = 0
    group: Any = None
    members: int = 0


@dataclass(frozen=True)
class Collective:
    """One op of the library.

    ``shapes(m, n, members)`` returns the shapes of input and output; ``reference`` is the oracle, torch.distributed's
    result for the same inputs. ``requirement`` is the id of the requirement that any case gives the oracle's result,
    and ``weight`` its weight; ``first`` is the element size (for a reduction, the element type) that is also tested at
    further world sizes.

    ``reduces``: it combines the members' inputs. ``root``: the keyword that names the root, if the op has a root.
    ``inputs_at``, ``outputs_at`` and ``results_at`` are "all" or "root": the members that pass an input, those that
    pass an output, and those whose output is written. ``in_place``: ``ALWAYS`` if the op has only one tensor,
    ``SOMETIMES`` if the output may be the input, else ``NEVER``. ``owned(case, member, members)``: the mask of elements
    that a member writes, if each member writes only a part of the result.

    ``variants``: the algorithms, the simplest first. ``has_variant_field``: Config selects one by ``NAME_variant``.
    ``has_distribution``: Config's ``all_reduce_distribution`` and ``all_reduce_num_rings`` apply. ``kernels``: the
    kernels of drawn cases. ``reached``: the tensors of a member that other members read or write. ``far``: the sides
    and languages tested at far addresses; empty if the op uses another op's kernels. ``far_rows``: rows are far apart
    instead of columns. ``published_gluon``: the published op has a Gluon kernel. ``wrong_settings(config, members)``
    yields (label, a Config that the op refuses), and ``wrong_reductions(config)`` yields (label, name of the reduction,
    Config).
    """

    name: str
    shapes: Callable[[int, int, int], tuple[Shape, Shape]]
    reference: Callable[[Inputs], torch.Tensor]
    requirement: str = ""
    weight: float = 4.0
    first: int | str = 2
    reduces: bool = False
    root: str = ""
    inputs_at: str = "all"
    outputs_at: str = "all"
    results_at: str = "all"
    in_place: str = NEVER
    owned: Callable[[CollectiveCase, int, int], torch.Tensor] | None = None
    variants: tuple[Variant, ...] = (Variant(),)
    has_variant_field: bool = False
    has_distribution: bool = False
    kernels: tuple[Kernel, ...] = KERNELS
    reached: tuple[str, ...] = ("output",)
    far: tuple[tuple[str, str], ...] = FAR
    far_rows: bool = False
    published_gluon: bool = False
    wrong_settings: Callable[[Any, int], Iterator[tuple[str, Any]]] = lambda config, members: iter(())
    wrong_reductions: Callable[[Any], Iterator[tuple[str, str, Any]]] = lambda config: iter(())

    @property
    def parameters(self) -> dict[str, tuple[Any, ...]]:
        """The parameters of ``requirement``: all element types for a reduction, otherwise all element sizes, since an
        op that only moves data does not interpret it."""
        values: tuple[Any, ...] = ALL if self.reduces else (1, 2, 4, 8)
        ordered = (self.first, *(value for value in values if value != self.first))
        return {"dtype" if self.reduces else "width": ordered}

    def case(self, **fields: Any) -> CollectiveCase:
        """Return a case of the op, of two wavefronts: what one of them orders must hold for stores of the other one."""
        return CollectiveCase(op=self.name, **{"in_place": self.in_place == ALWAYS, "warps": 2, **fields})

    def fast(self, ranks: int) -> tuple[Variant, ...]:
        """Return the variants that have a protocol for small sizes on ``ranks`` ranks, if the library has it."""
        if not judged.offers("ccl.Config(protocol)"):
            return ()
        return tuple(one for one in self.variants if one.low_latency and ranks <= LOW_LATENCY_MEMBERS)

    def also_fast(self, case: CollectiveCase, ranks: int) -> list[CollectiveCase]:
        """Return the case with the protocol for small sizes, once for each variant that has it."""
        return [replace(case, variant=variant.name, protocol="ll") for variant in self.fast(ranks)]

    def drawn_kernels(self, ranks: int) -> tuple[Kernel, ...]:
        """Return the kernels of drawn cases, the simplest first."""
        fast = [
            Kernel(gluon=gluon, swizzle=1 if gluon else 4, variant=variant.name, protocol="ll")
            for variant in self.fast(ranks)
            for gluon in (False, True)
        ]
        return (*self.kernels, *fast)

    def own_tensor(self) -> tuple[str, str] | None:
        """Return a variant's name and the tensor ("input" or "output") that no other member reads or writes.

        Returns None if other members read or write all tensors in every variant.
        """
        tensors = ("output",) if self.in_place == ALWAYS else ("input", "output")
        for variant in self.variants:
            reached = self.reached if variant.reached is None else variant.reached
            if own := [tensor for tensor in tensors if tensor not in reached]:
                return variant.name, own[0]
        return None

    def rounds_once(self, case: CollectiveCase) -> bool:
        """Return True if the case's kernel computes sums and products of 16-bit floats in float32 and rounds them once.

        A variant that adds in no fixed order rounds after each addition. Without a Config the library may choose it.
        """
        possible = [one for one in self.variants if case.default or one.name == case.variant]
        return all(variant.same_bits for variant in possible)

    def passes(self, tensor: str, *, is_root: bool) -> bool:
        """Return True if a member passes the tensor "input" or "output"."""
        return is_root or (self.inputs_at if tensor == "input" else self.outputs_at) == "all"


def published(case: CollectiveCase) -> CollectiveCase:
    """Return the case, reduced to what the published API supports.

    That is sums, Gluon kernels of two ops, no handles, and groups with a uniform stride, in which all ranks of the
    world call. The caller's barriers order its calls, so no tensor is used by two calls, or in place.
    """
    op = COLLECTIVES[case.op]
    return replace(
        case,
        reduce="sum",
        gluon=case.gluon and op.published_gluon,
        variant="two_shot" if case.variant == "two_shot_push" else case.variant,
        group={"uneven": "stride", "reversed": "world"}.get(case.group, case.group),
        calls=1 if case.reuse else case.calls,
        reuse=False,
        async_op=False,
        in_place=op.in_place == ALWAYS,
    )


def names(holds: Callable[[Collective], Any] = lambda op: True) -> tuple[str, ...]:
    """Return the names of the collectives for which ``holds`` is true."""
    return tuple(name for name, op in COLLECTIVES.items() if holds(op))


def one_of_each_kind() -> tuple[str, ...]:
    """Return one op of each kind, for properties that all ops of a kind have in common.

    The kinds are a reduction, an op with a root, and an op that is neither.
    """
    kinds: tuple[Callable[[Collective], Any], ...] = (
        lambda op: op.reduces and not op.root,
        lambda op: op.root and not op.reduces,
        lambda op: not op.root and not op.reduces,
    )
    return tuple(names(kind)[0] for kind in kinds)


def described(op: str) -> Collective:
    """Return the description of a collective or of a message op."""
    return {**COLLECTIVES, **MESSAGES}[op]


# -- the collectives ---------------------------------------------------------------------------------------------------


def _same(m: int, n: int, members: int) -> tuple[Shape, Shape]:
    return (m, n), (m, n)


def _stacked(m: int, n: int, members: int) -> tuple[Shape, Shape]:
    return (m, n), (members * m, n)


def _split(m: int, n: int, members: int) -> tuple[Shape, Shape]:
    return (members * m, n), (m, n)


def _blocks(m: int, n: int, members: int) -> tuple[Shape, Shape]:
    return (m, members * n), (m, members * n)


def _gathered(given: Inputs) -> torch.Tensor:
    return gathered(given.mine, given.group)


def _reduced(given: Inputs) -> torch.Tensor:
    return reduced(given.mine, given.reduce, given.group)


def _wrong_all_gather(config: Any, members: int) -> Iterator[tuple[str, Any]]:
    partitioned = {"all_gather_variant": "partitioned"}
    yield "a variant that Gluon lacks", config(**partitioned, comm_sms=members, use_gluon=True)
    if members > 1:
        yield "programs that do not divide", config(**partitioned, comm_sms=members * 4 + 1)


def _wrong_all_reduce(config: Any, members: int) -> Iterator[tuple[str, Any]]:
    yield "more rings than programs", config(all_reduce_variant="ring", all_reduce_num_rings=3, comm_sms=2)
    sliced = config(all_reduce_variant="ring")
    sliced.all_reduce_ring_slice_n = 48
    yield "slices that do not divide the tile", sliced


def _wrong_all_reduce_ops(config: Any) -> Iterator[tuple[str, str, Any]]:
    yield "an atomic product", "PRODUCT", config(all_reduce_variant="atomic")


_LISTED = (
    # all_gather(output (W*M, N), input (M, N), group, async_op, config): every member gets all members' rows, in the
    # group's order.
    Collective(
        "all_gather", _stacked, _gathered, "CCL-ALLGATHER-001",
        kernels=(
            *KERNELS[:2], Kernel(variant="partitioned", swizzle=1), Kernel(32, 64, 4, gluon=True),
            Kernel(32, 64, 4, default=True),
        ),
        variants=(Variant(low_latency=True),), has_variant_field=True, wrong_settings=_wrong_all_gather,
        far=(*FAR, ("input", "gluon"), ("output", "triton")), far_rows=True, published_gluon=True,
    ),
    # all_to_all(output (M, W*N), input (M, W*N), group, async_op, config): column block j of member i becomes column
    # block i of member j.
    Collective(
        "all_to_all", _blocks, lambda given: swapped(given.mine, given.group), "CCL-ALLTOALL-001", 2.0,
        variants=(Variant(low_latency=True),), published_gluon=True,
    ),
    # all_reduce(output (M, N), input (M, N), op, group, async_op, config, workspace): every member gets the reduction
    # of all inputs. one_shot, two_shot and the library's own choice are drawn here; test_all_reduce.py has the others.
    Collective(
        "all_reduce", _same, _reduced, "CCL-ALLREDUCE-001", 2.0, "bf16", reduces=True, in_place=SOMETIMES,
        kernels=(
            Kernel(variant="two_shot"), Kernel(variant="one_shot", gluon=True), Kernel(variant="two_shot_push"),
            Kernel(variant="two_shot", gluon=True), Kernel(4, 128, 4, variant="one_shot"),
            Kernel(32, 64, 4, default=True),
        ),
        variants=(
            Variant("one_shot", reached=("input",), low_latency=True),
            Variant("two_shot"),
            Variant("two_shot_push", far=("columns", "rows")),
            Variant("ring", far=("rows",)),
            Variant("spinlock", same_bits=False, far=("rows",)),
            Variant("atomic", same_bits=False),
        ),
        has_variant_field=True, has_distribution=True, reached=("output", "input"),
        wrong_settings=_wrong_all_reduce, wrong_reductions=_wrong_all_reduce_ops,
    ),
    # reduce_scatter(output (M, N), input (M, N), op, group, async_op, config): each member owns some tiles of the
    # result. It writes the elements of its tiles at their positions; the rest of its output is untouched.
    Collective(
        "reduce_scatter", _same, _reduced, "CCL-REDUCESCATTER-001", 1.0, "fp16", reduces=True, in_place=SOMETIMES,
        owned=shares.owned, variants=(Variant(low_latency=True),), has_variant_field=True, has_distribution=True,
        reached=("input",), far=(),
    ),
    # broadcast(tensor (M, N), src, group, async_op, config): every member's tensor becomes that of global rank ``src``.
    Collective(
        "broadcast", _same, lambda given: broadcast(given.mine, given.root, given.group), "CCL-BROADCAST-001", 2.0,
        root="src", inputs_at="root", in_place=ALWAYS, variants=(Variant(low_latency=True),), far=(),
    ),
    # reduce(output (M, N), input (M, N), dst, op, group, async_op, config): only global rank ``dst`` gets the reduction
    # of all inputs.
    Collective(
        "reduce", _same, _reduced, "CCL-REDUCE-001", 1.0, "fp32", reduces=True, root="dst", results_at="root",
        in_place=SOMETIMES, reached=("output", "input"), far=(),
    ),
    # scatter(output (M, N), input (W*M, N), src, group, async_op, config): the i-th M rows of global rank ``src``
    # become member i's output. The other members pass None as input.
    Collective(
        "scatter", _split, lambda given: scattered(given.mine, given.root, given.group),
        "CCL-SCATTER-001", 2.0, 4, root="src", inputs_at="root", far=(),
    ),
    # gather(output (W*M, N), input (M, N), dst, group, async_op, config): global rank ``dst`` gets all members' rows,
    # in the group's order. The other members pass None as output.
    Collective(
        "gather", _stacked, _gathered, "CCL-GATHER-001", 2.0, 8, root="dst", outputs_at="root", results_at="root",
        reached=("input",), far=(),
    ),
)  # fmt: skip

COLLECTIVES = {op.name: op for op in _LISTED}

MESSAGES = {
    op.name: op
    for op in (
        Collective("send", _same, lambda given: given.mine, far=()),
        # In a ring: each rank receives from the previous one.
        Collective("sendrecv", _same, lambda given: gathered(given.mine[None])[dist.get_rank() - 1]),
    )
}
"""Message ops between two ranks: send (with recv), and sendrecv. See ``test_send_recv.py``."""

MESSAGE_TYPES = ("fp16", "int8", "int32", "fp64")
"""One element type of each size: kernels that move data depend only on the size."""
