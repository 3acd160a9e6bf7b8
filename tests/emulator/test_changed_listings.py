"""Listings changed at random end, or are refused by name: no crash, no bare Python error, no endless run."""

import random
import re

import pytest
import torch
import triton
import triton.language as tl

from harness import emulator
from harness.emulator import ListingError
from harness.errors import HarnessError, KernelFault


@triton.jit
def scan(x, y, n, N: tl.constexpr):
    i = tl.arange(0, N)
    total = tl.cumsum(tl.atomic_add(x + i % 7, i), 0)
    while n > 0:
        n -= 1
        total += n // 3
    tl.store(y + i, total)


@triton.jit
def lock(word, x):
    while tl.atomic_cas(word, 0, 1) == 1:
        pass
    tl.store(x, tl.load(x) + 1)
    tl.debug_barrier()
    tl.atomic_xchg(word, 0)


@triton.jit
def product(a, b, c, K, N: tl.constexpr):
    i = tl.arange(0, N)
    total = tl.zeros((N, N), tl.float32)
    for k in range(0, K, N):
        total = tl.dot(
            tl.load(a + i[:, None] * K + k + i[None, :]), tl.load(b + (k + i[:, None]) * N + i[None, :]), total
        )
    tl.store(c + i[:, None] * N + i[None, :], total)


NUMBERS = ("0", "-1", "7", "0x7fffffff", "99999999999999999999")
ENDINGS = (
    "offset:99999",
    "offset:-5",
    "op_sel:[1,1,1]",
    "clamp",
    "sc0 sc1",
    "row_shl:77",
    "quad_perm:[9,9]",
    "offset:x",
)


def change(choose, text):
    """Return the text with one line changed: dropped, swapped, cut, or with other registers, numbers or modifiers."""
    lines = text.splitlines()
    start = next(n for n, line in enumerate(lines) if re.match(r"\w+:", line))
    end = next(n for n, line in enumerate(lines) if line.startswith(".Lfunc_end"))
    code = [n for n in range(start, end) if re.match(r"\t[a-z]", lines[n])]
    at, other = choose.choice(code), choose.choice(code)
    line = lines[at].partition(";")[0].rstrip()
    arguments = lines[other].partition(";")[0].split()[1:]
    lines[at] = choose.choice([
        "\ts_nop 0",
        lines[other],
        re.sub(r"\b([vs])\d+\b", lambda m: f"{m[1]}{choose.randrange(130)}", line, count=1),
        re.sub(r"\[\d+:\d+\]", lambda m: f"[{choose.randrange(130)}:{choose.randrange(130)}]", line, count=1),
        re.sub(r"\b\d+\b(?!\])", lambda m: choose.choice(NUMBERS), line, count=1),
        line[: choose.randrange(2, len(line) + 1)],
        f"{line.split()[0]} {' '.join(arguments)}",
        f"{line} {choose.choice(ENDINGS)}",
    ])  # fmt: skip
    return "\n".join(lines) + "\n"


@pytest.mark.slow
@pytest.mark.parametrize("kernel", ["scan", "lock", pytest.param("product", marks=pytest.mark.nightly)])
def test_a_changed_listing_ends_or_is_refused_by_name(kernel):
    driver = emulator.activate()
    driver.time_limit = 1.0
    words, numbers = torch.zeros(16, dtype=torch.int32), torch.zeros(128, dtype=torch.int32)
    half, single = torch.ones(16, 64, dtype=torch.float16), torch.zeros(16, 16)
    run = {
        "scan": lambda: scan[(1,)](words, numbers, 5, 128, num_warps=2),
        "lock": lambda: lock[(3,)](words, single, num_warps=1),
        "product": lambda: product[(1,)](half, half, single, 64, 16, num_warps=2),
    }[kernel]
    run()
    ended = 0
    try:
        for number in range(150):
            driver.rewrite = lambda _, text, number=number: change(random.Random(f"{kernel} {number}"), text)
            words.zero_()
            try:
                run()
                ended += 1
            except (HarnessError, KernelFault, ListingError):
                pass
    finally:
        emulator.deactivate()
    assert 10 < ended < 140
