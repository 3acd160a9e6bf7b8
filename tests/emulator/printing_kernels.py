"""Kernels that print and assert."""

import triton
import triton.language as tl


@triton.jit
def print_blocks(x, f, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    v, w = tl.load(x + i), tl.load(f + i)
    tl.device_print("a prefix that does not fit into the seven words of one packet, whatever comes: ", v, w)
    tl.device_print("hex", v, hex=True)
    tl.device_print("narrow", w.to(tl.float16), v.to(tl.int8), v.to(tl.int64), v.to(tl.uint32))


@triton.jit
def print_scalars(n):
    for i in range(n):
        if i == 1:
            tl.device_print("turn", i)
        tl.device_print("done")


@triton.jit
def assert_below(x, limit, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    v = tl.load(x + i)
    tl.device_assert(v < limit, "a value is too large, and this text has more words than one packet can carry")
    tl.store(x + i, v + 1)


@triton.jit
def print_and_assert(x):
    tl.device_print("found", tl.load(x))
    tl.device_assert(tl.load(x) < 0, "not negative")
