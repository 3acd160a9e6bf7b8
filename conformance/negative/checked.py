"""Kernels of the debug build, one for each form, that call one of several operations: the one of a number.

So each form is compiled once, whatever the operations are. The operations are those of ``conformance.rma.operations``
and, after them, those of ``conformance.atomics.operations``: ``transfers`` and ``atomics`` are their calls in the form
of the kernel, and ``masked`` has an entry for each atomic, whether it has a mask. All act on ``n`` int32 elements; an
atomic without a mask acts only on the last of them. ``SOURCES`` makes Triton's disk cache know other sources of them.
"""

import triton
import triton.language as tl
from triton.experimental import gluon
from triton.experimental.gluon import language as gl

from conformance.rma.several import sources_of

RUN_TIME = ["number", "source", "target", "n", "from_rank", "to_rank"]


@gluon.jit(do_not_specialize=RUN_TIME)
def checked_by_gluon(
    IrisDeviceCtx: gl.constexpr, context_tensor, transfers: gl.constexpr, atomics: gl.constexpr, masked: gl.constexpr,
    SOURCES: gl.constexpr, number, source, target, n, from_rank, to_rank, LANES: gl.constexpr,
):  # fmt: skip
    ctx = IrisDeviceCtx.initialize(context_tensor)
    offsets = gl.arange(0, LANES, layout=gl.BlockedLayout([1], [LANES], [1], [0]))
    mask = offsets < n
    for i in gl.static_range(len(transfers)):
        if number == i:
            transfers[i](ctx, source + offsets, target + offsets, from_rank, to_rank, mask, None, None, None, False)
    for i in gl.static_range(len(atomics)):
        if number == len(transfers) + i:
            if masked[i]:
                atomics[i](ctx, target + offsets, offsets, offsets, to_rank, mask, "acq_rel", "sys")
            else:
                atomics[i](ctx, target + n - 1, n, n, to_rank, None, "acq_rel", "sys")


@triton.jit(do_not_specialize=RUN_TIME)
def checked_by_context(
    DeviceContext: tl.constexpr, context_tensor, RANK: tl.constexpr, RANKS: tl.constexpr, transfers: tl.constexpr,
    atomics: tl.constexpr, masked: tl.constexpr, SOURCES: tl.constexpr, number, source, target, n, from_rank, to_rank,
    LANES: tl.constexpr,
):  # fmt: skip
    ctx = DeviceContext.initialize(context_tensor, RANK, RANKS)
    offsets = tl.arange(0, LANES)
    mask = offsets < n
    for i in tl.static_range(len(transfers)):
        if number == i:
            transfers[i](
                ctx, source + offsets, target + offsets, from_rank, to_rank, mask, None, None, None, False, None
            )
    for i in tl.static_range(len(atomics)):
        if number == len(transfers) + i:
            if masked[i]:
                atomics[i](ctx, target + offsets, offsets, offsets, to_rank, mask, "acq_rel", "sys")
            else:
                atomics[i](ctx, target + n - 1, n, n, to_rank, None, "acq_rel", "sys")


@triton.jit(do_not_specialize=[*RUN_TIME, "rank"])
def checked_by_function(
    functions: tl.constexpr, heap_bases, rank, transfers: tl.constexpr, atomics: tl.constexpr, masked: tl.constexpr,
    SOURCES: tl.constexpr, number, source, target, n, from_rank, to_rank, LANES: tl.constexpr,
):  # fmt: skip
    """``functions`` has the function under test of each operation."""
    offsets = tl.arange(0, LANES)
    mask = offsets < n
    for i in tl.static_range(len(transfers)):
        if number == i:
            transfers[i](
                functions[i], heap_bases, rank, source + offsets, target + offsets, from_rank, to_rank, mask, None,
                None, None, False, None,
            )  # fmt: skip
    for i in tl.static_range(len(atomics)):
        if number == len(transfers) + i:
            function: tl.constexpr = functions[len(transfers) + i]
            if masked[i]:
                atomics[i](
                    function, heap_bases, rank, target + offsets, offsets, offsets, to_rank, mask, "acq_rel", "sys"
                )
            else:
                atomics[i](function, heap_bases, rank, target + n - 1, n, n, to_rank, None, "acq_rel", "sys")


KERNELS = {"gluon": checked_by_gluon, "context": checked_by_context, "function": checked_by_function}


def launch(env, form, transfers, atomics, number, source, target, n, from_rank, to_rank):
    """Launch the operation of that number among ``transfers`` and ``atomics``, in a debug build, on one wavefront."""
    calls = tuple(op.calls[form] for op in transfers), tuple(op.calls[form] for op in atomics)
    masked, functions = tuple(op.masked for op in atomics), ()
    if form == "gluon":
        first = (env.device_context, env.context)
    elif form == "context":
        first = (env.under_test.triton_context, env.context, env.rank, env.world_size)
    else:
        names = [*(op.name for op in transfers), *(f"atomic_{op.name}" for op in atomics)]
        functions = tuple(map(env.under_test.function, names))
        first = (functions, env.iris.get_heap_bases(), env.rank)
    data = (source, target, n, from_rank, to_rank)
    sources = sources_of([*calls[0], *calls[1], *functions])
    KERNELS[form][(1,)](*first, *calls, masked, sources, number, *data, env.device.lanes, num_warps=1, debug=True)
