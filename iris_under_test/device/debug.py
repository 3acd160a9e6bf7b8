"""The debug build: a remote access outside the heap, or to a rank outside the world, stops the kernel and says why.

Two switches, both off by default; without them the compiled code is what it is without this module:

``IRIS_DEBUG=1`` in the environment when the library is imported: every kernel of the process.
``kernel[grid](..., debug=True)``, or Triton's ``TRITON_DEBUG=1``: kernels whose ``tl.device_assert`` is live as well.

Both are part of the key of Triton's caches. A kernel that is stopped has printed, once per wavefront (warp), what was
passed and what would have been right, in bytes from the heap's start; its assertion names the operation, the kernel and
the source line of the call (or lines, where a function makes several). On a GPU the process's device context is lost
then, as after every failed assertion.

What is checked needs the context tensor of an ``Iris``: the heap's size lies two entries before it. Hence
``heap_bases`` must be the instance's own table (``Iris.get_heap_bases()``), not a copy.

The functions serve Triton and Gluon kernels alike.
"""

import ast
import inspect
import os
import sys
from typing import Any

import triton
import triton.language as tl
from triton.compiler.code_generator import CodeGenerator
from triton.language.target_info import is_hip
from triton.runtime.jit import JITFunction

__all__ = ["IRIS_DEBUG", "check"]

IRIS_DEBUG = tl.constexpr(os.environ.get("IRIS_DEBUG", "").lower() in ("1", "true", "yes"))


@triton.jit
def check(pointer, heap_bases, from_rank, to_rank, mask, op: tl.constexpr):
    """In a debug build, stops the kernel unless ``op`` may move ``pointer`` from one rank's heap to another's.

    ``pointer``: scalar or block, elements that must lie in ``from_rank``'s heap wherever ``mask`` (None: everywhere) is
    true. Both ranks must be in the world. ``op``: name of the operation, for the message.

    Example: a heap of 0x1000 bytes at 0x8000, int32 pointers 0x8ffc and 0x9000: bytes 0xffc to 0x1003, the last of
    which is beyond the heap's last, 0xfff.
    """
    if IRIS_DEBUG or _asserting():
        num_ranks, rank, heap_size = tl.load(heap_bases - 1), tl.load(heap_bases - 2), tl.load(heap_bases - 4)
        in_world = (from_rank >= 0) & (from_rank < num_ranks) & (to_rank >= 0) & (to_rank < num_ranks)
        place = pointer.to(tl.int64) - tl.load(heap_bases + tl.where(in_world, from_rank, rank))
        first, last = _lowest(place, mask), -_lowest(-place, mask) + (_bytes_of(pointer.dtype) - 1)
        # Where no lane is active, first is above last.
        in_heap = (first > last) | ((first >= 0) & (last < heap_size))
        if not (in_world & in_heap):
            _print(
                first, last, heap_size, tl.cast(from_rank, tl.int64), tl.cast(to_rank, tl.int64), num_ranks, rank
            )  # fmt: skip
            # The assertion of another wavefront would end the kernel while the printing one is at it.
            tl.debug_barrier()
        _assert(in_world, op, "rank outside the world")
        _assert(in_heap, op, "pointer outside the heap")


@triton.jit(noinline=True)
def _print(first, last, heap_size, from_rank, to_rank, num_ranks, rank):
    """All int64. A function of its own: each print is some hundred instructions on an AMD GPU."""
    if _first_lane() == 0:
        tl.device_print("iris: first byte of the heap that is touched", first)
        tl.device_print("iris: last byte of the heap that is touched", last)
        tl.device_print("iris: bytes in the heap", heap_size)
        tl.device_print("iris: heap of rank", from_rank)
        tl.device_print("iris: target rank", to_rank)
        tl.device_print("iris: number of ranks", num_ranks)
        tl.device_print("iris: by rank", rank)


@triton.jit
def _lowest(place, mask):
    """The lowest of the int64 ``place`` where ``mask`` is true, 2^62 where it is nowhere."""
    if mask is not None:
        place = tl.where(mask, place, 1 << 62)
    if place.type.is_block():
        place = tl.min(place, axis=None)
    return place


@triton.jit
def _first_lane():
    """0 in one lane of each wavefront (AMD) or program (NVIDIA).

    Triton takes every scalar to be the same in all lanes, and so prints it in all of them.
    """
    if is_hip():
        lane = tl.inline_asm_elementwise(
            "v_mbcnt_lo_u32_b32 $0, -1, 0\nv_mbcnt_hi_u32_b32 $0, -1, $0", "=&v", [], tl.int32, is_pure=True, pack=1
        )
    else:
        lane = tl.inline_asm_elementwise("mov.u32 $0, %tid.x;", "=r", [], tl.int32, is_pure=True, pack=1)
    return lane


@triton.constexpr_function
def _bytes_of(dtype):
    # 1-bit elements occupy one byte.
    return (dtype.element_ty.primitive_bitwidth + 7) // 8


@tl.core.builtin
def _asserting(_semantic=None):
    """Whether the kernel is compiled with ``debug=True``."""
    return tl.constexpr(bool(_semantic.builder.options.debug))


@tl.core.builtin
def _assert(condition, op, what, _semantic=None):
    """``tl.device_assert`` that is live whatever the kernel's options, and tells whose call was wrong."""
    kernel, caller, file, lines = _calls(op.value)
    where = f"{file}:{' or '.join(map(str, lines))}" if lines else "a line that is not known"
    inside = kernel if caller == kernel else f"{caller} of kernel {kernel}"
    builder = _semantic.builder
    before = builder.get_loc()
    if lines:
        # What a GPU prints in front of the text of an assertion.
        builder.set_loc(builder.create_loc(file, lines[0], 0))
    builder.create_assert(condition.handle, f"iris {op.value}: {what.value}, in {inside} at {where}")
    builder.set_loc(before)


def _calls(op: str) -> tuple[str, str, str, list[int]]:
    """Names of the kernel that is being compiled and of its function that calls ``op``; file, and lines of such calls.

    Calls of one operation with equal types share one compiled function, and so one text: every call of that name in
    the calling function is listed. The compiler is asked by way of Python's stack, where each function that is being
    compiled has a CodeGenerator.
    """
    generators: list[CodeGenerator] = []
    frame = sys._getframe()
    while frame is not None:
        generator = frame.f_locals.get("self")
        if isinstance(generator, CodeGenerator) and generator not in generators:
            generators.append(generator)
        frame = frame.f_back
    kernel = generators[-1].jit_fn.__name__
    for generator in generators:
        function = generator.jit_fn
        if not function.__module__.startswith(f"{__package__}."):
            lines = {generator.cur_node.lineno}
            lines.update(node.lineno for node in ast.walk(function.parse()) if _is_call(node, op, function.__globals__))
            return kernel, function.__name__, generator.file_name, sorted(generator.begin_line + n for n in lines)
    return kernel, kernel, "", []


def _is_call(node: ast.AST, op: str, names: dict[str, Any]) -> bool:
    """Whether it may call this library's ``op``: by that name, and not as a function of Triton's own (``tl.load``)."""
    if not isinstance(node, ast.Call):
        return False
    if isinstance(node.func, ast.Attribute) and node.func.attr == op:
        owner = names.get(getattr(node.func.value, "id", ""))
        return isinstance(getattr(owner, op, None), JITFunction) if inspect.ismodule(owner) else True
    return isinstance(node.func, ast.Name) and node.func.id == op
