"""Accesses of compiled functions to records, and calls of functions by address, at addresses passed as int64."""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic


def _get64(typing, address):
    def codegen(context, builder, signature, args):
        return builder.load(builder.inttoptr(args[0], ir.IntType(64).as_pointer()))

    return types.int64(types.int64), codegen


def _put64(typing, address, value):
    def codegen(context, builder, signature, args):
        builder.store(args[1], builder.inttoptr(args[0], ir.IntType(64).as_pointer()))
        return context.get_dummy_value()

    return types.void(types.int64, types.int64), codegen


def _get8(typing, address):
    def codegen(context, builder, signature, args):
        octet = builder.load(builder.inttoptr(args[0], ir.IntType(8).as_pointer()))
        return builder.zext(octet, ir.IntType(64))

    return types.int64(types.int64), codegen


def _put32(typing, address, value):
    def codegen(context, builder, signature, args):
        word = builder.trunc(args[1], ir.IntType(32))
        builder.store(word, builder.inttoptr(args[0], ir.IntType(32).as_pointer()))
        return context.get_dummy_value()

    return types.void(types.int64, types.int64), codegen


def _clear(typing, address, count):
    def codegen(context, builder, signature, args):
        place = builder.inttoptr(args[0], ir.IntType(8).as_pointer())
        cgutils.memset(builder, place, args[1], 0)
        return context.get_dummy_value()

    return types.void(types.int64, types.int64), codegen


def _copy(typing, target, source, count):
    def codegen(context, builder, signature, args):
        places = [builder.inttoptr(arg, ir.IntType(8).as_pointer()) for arg in args[:2]]
        cgutils.raw_memcpy(builder, *places, args[2], 1)
        return context.get_dummy_value()

    return types.void(types.int64, types.int64, types.int64), codegen


def _move(typing, target, source, count):
    def codegen(context, builder, signature, args):
        places = [builder.inttoptr(arg, ir.IntType(8).as_pointer()) for arg in args[:2]]
        cgutils.raw_memmove(builder, *places, args[2], 1)
        return context.get_dummy_value()

    return types.void(types.int64, types.int64, types.int64), codegen


def _pointer(typing, address):
    def codegen(context, builder, signature, args):
        return builder.inttoptr(args[0], ir.IntType(8).as_pointer())

    return types.voidptr(types.int64), codegen


def _elements(kind):
    """Return an intrinsic that makes an address a pointer to elements of a type, which is indexed like an array."""

    def elements(typing, address):
        def codegen(context, builder, signature, args):
            return builder.inttoptr(args[0], context.get_value_type(signature.return_type))

        return types.CPointer(kind)(types.int64), codegen

    return elements


def _bit_count(typing, word):
    return types.int64(types.int64), lambda context, builder, signature, args: builder.ctpop(args[0])


def _call(typing, function, wave, parameters):
    def codegen(context, builder, signature, args):
        i64 = ir.IntType(64)
        kind = ir.FunctionType(i64, [i64, i64])
        return builder.call(builder.inttoptr(args[0], kind.as_pointer()), args[1:])

    return types.int64(types.int64, types.int64, types.int64), codegen


def _cycles(typing):
    def codegen(context, builder, signature, args):
        kind = ir.FunctionType(ir.IntType(64), [])
        return builder.call(cgutils.get_or_insert_function(builder.module, kind, "llvm.readcyclecounter"), [])

    return types.int64(), codegen


get64: Any = intrinsic(_get64)
put64: Any = intrinsic(_put64)
get8: Any = intrinsic(_get8)
put32: Any = intrinsic(_put32)
pointer: Any = intrinsic(_pointer)
words64: Any = intrinsic(_elements(types.int64))
words32: Any = intrinsic(_elements(types.int32))
octets: Any = intrinsic(_elements(types.uint8))
clear: Any = intrinsic(_clear)
copy: Any = intrinsic(_copy)
move: Any = intrinsic(_move)
bit_count: Any = intrinsic(_bit_count)
call: Any = intrinsic(_call)
cycles: Any = intrinsic(_cycles)
