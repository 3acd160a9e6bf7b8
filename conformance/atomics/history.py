"""The rank function of all atomics: every lane operates once on a peer's cell, and the old values must be consistent.

Each rank has cells. In one launch per peer its lanes operate on that peer's cells, several lanes and ranks on the same
cell, and store the returned old values. The expected final cells are torch.distributed's all_reduce of all operands; an
exchange has no such reduction, and its final cells follow from the chain of old values. The owner of the cells gathers
the old values and searches an order of operations that explains them. Then the whole heap is compared.
"""

from typing import Any

import numpy as np
import torch
import triton
import triton.language as tl
from triton.experimental import gluon
from triton.experimental.gluon import language as gl

from conformance.atomics.cases import AtomicCase
from conformance.atomics.inputs import contribution, final_values, initial_values, inputs_of
from conformance.atomics.operations import ATOMICS
from conformance.atomics.order import check_order
from conformance.support.masks import kept_lanes
from fixtures.worker import Env
from harness.cases import of_name
from harness.isa import protocol
from harness.oracles import AtomicHistory, difference, exchange, explain, reduced

CELLS, OLDS, OLDS_STRIDE = 4096, 64 * 1024, 32 * 1024


@gluon.jit(do_not_specialize=["cells", "cell_of", "values", "compares", "keep", "olds", "n", "to_rank"])
def atomic_kernel(
    IrisDeviceCtx: gl.constexpr, context_tensor, apply: gl.constexpr,
    cells, cell_of, values, compares, keep, olds, n, to_rank,
    MASKED: gl.constexpr, RETURNED: gl.constexpr, SEM: gl.constexpr, SCOPE: gl.constexpr,
    SPT: gl.constexpr, LANES: gl.constexpr, WARPS: gl.constexpr,
):  # fmt: skip
    """``apply(ctx, pointer, compare, value, to_rank, mask, sem, scope)`` is the method under test."""
    ctx = IrisDeviceCtx.initialize(context_tensor)
    if SPT == 0:
        lane = gl.program_id(0)
        pointer = cells + gl.load(cell_of + lane)
        old = apply(ctx, pointer, gl.load(compares + lane), gl.load(values + lane), to_rank, None, SEM, SCOPE)
        if RETURNED:
            gl.store(olds + lane, old)
    else:
        BLOCK: gl.constexpr = SPT * LANES * WARPS
        offsets = gl.program_id(0) * BLOCK + gl.arange(0, BLOCK, layout=gl.BlockedLayout([SPT], [LANES], [WARPS], [0]))
        mask = None
        if MASKED:
            mask = offsets < n
            mask = mask & (gl.load(keep + offsets, mask=mask, other=0) != 0)
        # Loaded for all lanes, so that an operation of a masked-off lane would change a cell and be noticed.
        pointer = cells + gl.load(cell_of + offsets)
        compare, value = gl.load(compares + offsets), gl.load(values + offsets)
        old = apply(ctx, pointer, compare, value, to_rank, mask, SEM, SCOPE)
        if RETURNED:
            gl.store(olds + offsets, old, mask=mask)


_UNKNOWN = ["cells", "cell_of", "values", "compares", "keep", "olds", "n", "rank", "to_rank"]


@triton.jit(do_not_specialize=_UNKNOWN)
def atomic_by_context(
    DeviceContext: tl.constexpr, context_tensor, RANK: tl.constexpr, RANKS: tl.constexpr, apply: tl.constexpr,
    cells, cell_of, values, compares, keep, olds, n, to_rank,
    MASKED: tl.constexpr, RETURNED: tl.constexpr, SEM: tl.constexpr, SCOPE: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """``apply(ctx, pointer, compare, value, to_rank, mask, sem, scope)`` is the method under test; BLOCK 0: scalar."""
    ctx = DeviceContext.initialize(context_tensor, RANK, RANKS)
    if BLOCK == 0:
        lane = tl.program_id(0)
        pointer = cells + tl.load(cell_of + lane)
        old = apply(ctx, pointer, tl.load(compares + lane), tl.load(values + lane), to_rank, None, SEM, SCOPE)
        if RETURNED:
            tl.store(olds + lane, old)
    else:
        offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        mask = None
        if MASKED:
            mask = offsets < n
            mask = mask & (tl.load(keep + offsets, mask=mask, other=0) != 0)
        pointer = cells + tl.load(cell_of + offsets)
        compare, value = tl.load(compares + offsets), tl.load(values + offsets)
        old = apply(ctx, pointer, compare, value, to_rank, mask, SEM, SCOPE)
        if RETURNED:
            tl.store(olds + offsets, old, mask=mask)


@triton.jit(do_not_specialize=_UNKNOWN)
def atomic_by_function(
    function: tl.constexpr, heap_bases, rank, apply: tl.constexpr,
    cells, cell_of, values, compares, keep, olds, n, to_rank,
    MASKED: tl.constexpr, RETURNED: tl.constexpr, SEM: tl.constexpr, SCOPE: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """``apply(function, heap_bases, rank, pointer, ...)`` calls the function under test; BLOCK 0: scalar."""
    if BLOCK == 0:
        lane = tl.program_id(0)
        pointer = cells + tl.load(cell_of + lane)
        compare, value = tl.load(compares + lane), tl.load(values + lane)
        old = apply(function, heap_bases, rank, pointer, compare, value, to_rank, None, SEM, SCOPE)
        if RETURNED:
            tl.store(olds + lane, old)
    else:
        offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        mask = None
        if MASKED:
            mask = offsets < n
            mask = mask & (tl.load(keep + offsets, mask=mask, other=0) != 0)
        pointer = cells + tl.load(cell_of + offsets)
        compare, value = tl.load(compares + offsets), tl.load(values + offsets)
        old = apply(function, heap_bases, rank, pointer, compare, value, to_rank, mask, SEM, SCOPE)
        if RETURNED:
            tl.store(olds + offsets, old, mask=mask)


KERNELS = {"gluon": atomic_kernel, "context": atomic_by_context, "function": atomic_by_function}


def drawn(ranks: int, dtype: str, op: str, form: str = "gluon") -> Any:
    """Return the strategies for cases of the op of that name with one element type."""
    from conformance.atomics import strategies

    return strategies.atomics(ranks, op, dtype, form)


def moves(ranks: int, case: AtomicCase) -> bool:
    """Return whether an active lane of the case operates on another rank's cells, whatever its mask selects."""
    others = any(target != actor for actor, targets in enumerate(case.targets) for target in targets)
    return others and case.n > 0 and case.mask in ("none", "range")


def run(env: Env, case: AtomicCase) -> dict[str, Any] | None:
    """Run a case on this rank and return the first difference."""
    op = ATOMICS[case.op]
    me, ranks, image, dtype = env.rank, env.world_size, env.image, of_name(case.dtype)
    pairs = {(actor, target) for actor, targets in enumerate(case.targets) for target in targets}
    targets = sorted(case.targets[me])
    start = initial_values(case, me)

    image.reset()
    cells = image.claim("cells", CELLS + case.offset * dtype.itemsize, case.cells, dtype)
    image.fill(cells, torch.from_numpy(start).to(dtype))
    olds = {t: image.claim(f"old values from rank {t}", OLDS + t * OLDS_STRIDE, case.n, dtype) for t in targets}
    if op.reduction:
        image.expect(cells, final_values(case, me, reduced(contribution(case, me, ranks), op.reduction)[me]))
    else:
        env.settle()  # barrier: every heap is ready

    with env.acting():
        for target in targets:
            _launch(env, case, target, env.pointer(cells.start, dtype), env.pointer(olds[target].start, dtype))
    env.device.synchronize()
    blank = torch.zeros(case.n, dtype=dtype)
    received = exchange([image.tensor(olds[t]) for t in targets] or [blank], pairs, rank=me, ranks=ranks)

    if case.returned:
        acted = torch.from_numpy(kept_lanes(case.mask, case.n, me))
        for region in olds.values():
            # The owner of the cells checks the old values. Here, lanes that were masked off must still hold poison.
            image.expected(region)[acted] = image.tensor(region).cpu()[acted]
    final = _wide(image.tensor(cells), start)
    history = _history(case, me, received)
    mismatch = explain(case.op, case.dtype, start, final, history, rank=me) if case.returned else None
    if not op.reduction:
        mismatch = mismatch or (None if case.returned else _possible(case, start, final, history, me))
        image.expect(cells, image.tensor(cells).clone())
    wrong = image.difference() or mismatch
    return wrong if wrong or env.fault else check_once(env, case) or check_order(env, case)


def check_once(env: Env, case: AtomicCase) -> dict[str, Any] | None:
    """Return a difference if a launch has executed more atomics than it has active elements, as where several lanes
    hold the same element. A compare-and-swap that is repeated by mistake changes nothing, unless another rank comes
    between. Only the emulated device counts what it executes. Fewer are right: lanes of one address may be combined.
    """
    active = int(kept_lanes(case.mask, case.n, env.rank).sum())
    for launch in env.launches():
        executed = sum(access.lanes for access in launch.accesses if access.kind == "atomic")
        if executed > active and not protocol.retries(protocol.read(launch.listing)):
            call = f"atomics that atomic_{case.op} executed for its active elements"
            return difference(call, rank=env.rank, got=executed, wanted=active)
    return None


def _launch(env: Env, case: AtomicCase, target: int, cells: torch.Tensor, olds: torch.Tensor) -> None:
    mine = inputs_of(case, env.rank, target)
    device, dtype = env.device.torch_device, of_name(case.dtype)

    def operand(values: np.ndarray, type_: torch.dtype) -> torch.Tensor:
        """Return one operand per lane of the grid; the masked-off lanes beyond n repeat earlier values."""
        whole = np.resize(values, case.grid * case.block) if case.n else np.ones(case.block, dtype=values.dtype)
        return torch.from_numpy(whole).to(type_).to(device)

    launch_atomic(
        env, case, cells, operand(mine.cell % case.cells, torch.int32), operand(mine.value, operand_type(case)),
        operand(mine.compare, dtype), torch.from_numpy(mine.acts.astype(np.uint8)).to(device), olds, target,
    )  # fmt: skip


def operand_type(case: AtomicCase) -> torch.dtype:
    """Return the type of the values: the cells' own, or a narrower unsigned one for the combined blocks of integer
    atomic_sub, whose negated values that type cannot hold."""
    if case.op == "sub" and case.spt and not case.returned and case.dtype.startswith("int"):
        return {"int32": torch.uint16, "int64": torch.uint32}[case.dtype]
    return of_name(case.dtype)


def launch_atomic(
    env: Env, case: AtomicCase, cells: torch.Tensor, cell_of: torch.Tensor, values: torch.Tensor,
    compares: torch.Tensor, keep: torch.Tensor, olds: torch.Tensor, target: int, **options: Any,
) -> None:  # fmt: skip
    """Launch the kernel of the case's form. Tensors have one element per lane. ``options`` are passed to Triton."""
    warps, op = env.warps(case.warps), ATOMICS[case.op]
    data = (
        op.calls[case.form], cells, cell_of, values, compares, keep, olds, case.n, target,
        op.masked, case.returned, case.sem, case.scope,
    )  # fmt: skip
    block = case.block if case.spt else 0
    if case.form == "gluon":
        first, shape = (env.device_context, env.context), (case.spt, env.device.lanes, warps)
    elif case.form == "context":
        first, shape = (env.under_test.triton_context, env.context, env.rank, env.world_size), (block,)
    else:
        function = env.under_test.function(f"atomic_{case.op}")
        first, shape = (function, env.iris.get_heap_bases(), env.rank), (block,)
    KERNELS[case.form][(case.grid,)](*first, *data, *shape, num_warps=warps, **options)


def _history(case: AtomicCase, owner: int, received: dict[int, torch.Tensor]) -> AtomicHistory:
    """Return all operations on ``owner``'s cells, with the old values that they returned."""
    parts: list[tuple[np.ndarray, ...]] = []
    for actor, olds in sorted(received.items()):
        theirs = inputs_of(case, actor, owner)
        lanes = np.flatnonzero(theirs.acts)
        old = _wide(olds, theirs.value)[lanes]
        parts.append(
            (theirs.cell[lanes], theirs.value[lanes], theirs.compare[lanes], old, np.full(len(lanes), actor), lanes)
        )
    if not parts:
        none = np.zeros(0, dtype=np.int64)
        values = initial_values(case, owner)[:0]
        return AtomicHistory(none, values, values, values, none, none)
    return AtomicHistory(*(np.concatenate(column) for column in zip(*parts, strict=True)))


def _possible(
    case: AtomicCase, start: np.ndarray, final: np.ndarray, history: AtomicHistory, rank: int
) -> dict[str, Any] | None:
    """Check the final cells without old values: each cell holds a value that some operation wrote, or its initial value
    if no operation can have changed it."""
    for cell in range(case.cells):
        mine = history.cell == cell
        may = history.value[mine]
        changed = mine.any() if case.op == "xchg" else (history.compare[mine] == start[cell]).any()
        if not (final[cell] in may if changed else final[cell] == start[cell]):
            wanted = f"one of {sorted(may.tolist())[:8]}" if changed else start[cell]
            return difference(f"cell {cell}", rank=rank, index=cell, got=final[cell], wanted=wanted)
    return None


def _wide(tensor: torch.Tensor, like: np.ndarray) -> np.ndarray:
    return tensor.to(torch.float64 if like.dtype == np.float64 else torch.int64).cpu().numpy().copy()
