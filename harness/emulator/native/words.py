"""Single machine accesses for compiled functions, at an address passed as uint64.

``load``, ``store``, ``swap`` and ``cas`` are atomic, so never torn, and take an aligned address or, on x86, any;
read-modify-writes are sequentially consistent. ``peek`` and ``poke`` are plain, at any alignment.
"""

from __future__ import annotations

from llvmlite import ir
from numba import types
from numba.extending import intrinsic


def _load_of(bits: int):
    result = getattr(types, f"uint{bits}")

    @intrinsic
    def load(typing, address):
        def codegen(context, builder, signature, args):
            pointer = builder.inttoptr(args[0], ir.IntType(bits).as_pointer())
            return builder.load_atomic(pointer, "monotonic", bits // 8)

        return result(types.uint64), codegen

    return load


def _store_of(bits: int):
    kind = getattr(types, f"uint{bits}")

    @intrinsic
    def store(typing, address, value):
        def codegen(context, builder, signature, args):
            pointer = builder.inttoptr(args[0], ir.IntType(bits).as_pointer())
            builder.store_atomic(args[1], pointer, "monotonic", bits // 8)
            return context.get_dummy_value()

        return types.void(types.uint64, kind), codegen

    return store


def _swap_of(bits: int):
    kind = getattr(types, f"uint{bits}")

    @intrinsic
    def swap(typing, address, value):
        def codegen(context, builder, signature, args):
            pointer = builder.inttoptr(args[0], ir.IntType(bits).as_pointer())
            return builder.atomic_rmw("xchg", pointer, args[1], "seq_cst")

        return kind(types.uint64, kind), codegen

    return swap


def _cas_of(bits: int):
    kind = getattr(types, f"uint{bits}")

    @intrinsic
    def cas(typing, address, expected, value):
        def codegen(context, builder, signature, args):
            pointer = builder.inttoptr(args[0], ir.IntType(bits).as_pointer())
            pair = builder.cmpxchg(pointer, args[1], args[2], "seq_cst", "seq_cst")
            return builder.extract_value(pair, 0)

        return kind(types.uint64, kind, kind), codegen

    return cas


def _peek_of(bits: int):
    """Return a plain load at an address of any alignment: gfx942 runs in unaligned access mode (LLVM AMDGPUUsage)."""

    @intrinsic
    def peek(typing, address):
        def codegen(context, builder, signature, args):
            pointer = builder.inttoptr(args[0], ir.IntType(bits).as_pointer())
            return builder.load(pointer, align=1)

        return getattr(types, f"uint{bits}")(types.uint64), codegen

    return peek


def _poke_of(bits: int):
    @intrinsic
    def poke(typing, address, value):
        def codegen(context, builder, signature, args):
            pointer = builder.inttoptr(args[0], ir.IntType(bits).as_pointer())
            builder.store(args[1], pointer, align=1)
            return context.get_dummy_value()

        return types.void(types.uint64, getattr(types, f"uint{bits}")), codegen

    return poke


load8, load16, load32, load64 = _load_of(8), _load_of(16), _load_of(32), _load_of(64)
store8, store16, store32, store64 = _store_of(8), _store_of(16), _store_of(32), _store_of(64)
swap32, swap64 = _swap_of(32), _swap_of(64)
cas32, cas64 = _cas_of(32), _cas_of(64)
peek8, peek16, peek32, peek64 = (_peek_of(bits) for bits in (8, 16, 32, 64))
poke8, poke16, poke32, poke64 = (_poke_of(bits) for bits in (8, 16, 32, 64))
