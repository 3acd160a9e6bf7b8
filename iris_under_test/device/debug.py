"""The debug build: a remote access outside the heap, or to a rank outside the world, stops the kernel with a message.

Two switches, both off by default; without them the compiled code is the same as without this module:

``IRIS_DEBUG=1`` in the environment when the library is imported: every kernel of the process. ``kernel[grid](...,
debug=True)``, or Triton's ``TRITON_DEBUG=1``: kernels in which ``tl.device_assert`` is active as well.

Both are part of the key of Triton's caches. Each failing wavefront (warp) prints the addresses that were passed and
those that are allowed, in bytes from the heap's start, before its assertion stops the kernel, which may cut off what
others print. The assertion names the operation, the kernel and the source line of the call (several lines if a function
makes several calls). On a GPU the process then loses its device context, as after every failed assertion.

The check reads the context tensor of an ``Iris``: the heap's size lies two entries before it. Therefore ``heap_bases``
must be the instance's own table (``Iris.get_heap_bases()``), not a copy.

The functions serve Triton and Gluon kernels alike.
"""

import ast
import inspect
import sys
from typing import Any

import triton
import triton.language as tl
from triton.compiler.code_generator import CodeGenerator
from triton.runtime.jit import JITFunction

from .bounds import IRIS_DEBUG, compiled_with_debug
from .targets import intrinsics

__all__ = ["check"]


@triton.jit
def check(pointer, heap_bases, from_rank, to_rank, mask, op: tl.constexpr):
    """In a debug build, stop the kernel unless ``op`` may move ``pointer`` from one rank's heap to another's.

    ``pointer``: scalar or block. Its elements must lie in ``from_rank``'s heap wherever ``mask`` is true (None:
    everywhere). Both ranks must be in the world. ``op``: name of the operation, for the message.

    Example: a heap of 0x1000 bytes at 0x8000, int32 pointers 0x8ffc and 0x9000: the access touches bytes 0xffc to
    0x1003, but the heap's last byte is 0xfff.
    """
    if IRIS_DEBUG or compiled_with_debug():
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
        _assert(in_world, op, "rank outside the world")
        _assert(in_heap, op, "pointer outside the heap")


@triton.jit(noinline=True)
def _print(first, last, heap_size, from_rank, to_rank, num_ranks, rank):
    """Print the values of a failed check, all int64.

    A function of its own, not inlined: each print takes about a hundred instructions on an AMD GPU.
    """
    # Triton takes every scalar to be the same in all lanes, and so prints it in all of them.
    if intrinsics().first_lane() == 0:
        tl.device_print("iris: first byte of the heap that is touched", first)
        tl.device_print("iris: last byte of the heap that is touched", last)
        tl.device_print("iris: bytes in the heap", heap_size)
        tl.device_print("iris: heap of rank", from_rank)
        tl.device_print("iris: target rank", to_rank)
        tl.device_print("iris: number of ranks", num_ranks)
        tl.device_print("iris: by rank", rank)


@triton.jit
def _lowest(place, mask):
    """Return the lowest int64 of ``place`` where ``mask`` is true, or 2^62 if it is true nowhere."""
    if mask is not None:
        place = tl.where(mask, place, 1 << 62)
    if place.type.is_block():
        place = tl.min(place, axis=None)
    return place


@triton.constexpr_function
def _bytes_of(dtype):
    # 1-bit elements occupy one byte.
    return (dtype.element_ty.primitive_bitwidth + 7) // 8


@tl.core.builtin
def _assert(condition, op, problem, _semantic=None):
    """``tl.device_assert`` that is active whatever the kernel's options are, and names the call that failed."""
    kernel, caller, file, lines = _calls(op.value)
    where = f"{file}:{' or '.join(map(str, lines))}" if lines else "an unknown line"
    inside = kernel if caller == kernel else f"{caller} of kernel {kernel}"
    builder = _semantic.builder
    before = builder.get_loc()
    if lines:
        # A GPU prints this location in front of the assertion's text.
        builder.set_loc(builder.create_loc(file, lines[0], 0))
    builder.create_assert(condition.handle, f"iris {op.value}: {problem.value}, in {inside} at {where}")
    builder.set_loc(before)


def _calls(op: str) -> tuple[str, str, str, list[int]]:
    """Return the names of the kernel being compiled and of its function that calls ``op``, the file, and the lines of
    these calls.

    Calls of one operation with equal types share one compiled function and so one text; therefore every call of that
    name in the calling function is listed. Python's stack gives access to the compiler: each function being compiled
    has a CodeGenerator there.
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
    """Return whether ``node`` may call this library's ``op``: a call of that name, but not of a function of Triton
    itself (``tl.load``).
    """
    if not isinstance(node, ast.Call):
        return False
    if isinstance(node.func, ast.Attribute) and node.func.attr == op:
        owner = names.get(getattr(node.func.value, "id", ""))
        return isinstance(getattr(owner, op, None), JITFunction) if inspect.ismodule(owner) else True
    return isinstance(node.func, ast.Name) and node.func.id == op
