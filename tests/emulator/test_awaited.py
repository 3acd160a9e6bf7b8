"""Reports of a hang: the word that a loop polls, its value, and the value with which it is compared."""

from __future__ import annotations

import re
import threading
import time

import pytest
import torch
import triton
import triton.language as tl

from harness import emulator
from harness.emulator.driver import driver

MODES = ("fast", "check", "weak")


@triton.jit
def by_atomic(flag, wanted, out):
    while tl.atomic_add(flag, 0, sem="acquire", scope="sys") != wanted:
        pass
    tl.store(out, 1)


@triton.jit
def by_load(flag, wanted, out):
    value = tl.load(flag, volatile=True)
    while value < wanted:
        value = tl.load(flag, volatile=True)
    tl.store(out, 1)


@triton.jit
def by_swap(flag, wanted, out):
    while tl.atomic_cas(flag, wanted, wanted, sem="acquire", scope="sys") != wanted:
        pass
    tl.store(out, 1)


@triton.jit
def by_masked_bits(flag, wanted, out):
    value = tl.load(flag, volatile=True)
    while (value & 0xFF00) != wanted:
        value = tl.load(flag, volatile=True)
    tl.store(out, 1)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("dtype", [torch.int32, torch.int64], ids=["int32", "int64"])
@pytest.mark.parametrize("kernel", [by_atomic, by_load, by_swap, by_masked_bits], ids=lambda kernel: kernel.__name__)
def test_the_word_its_value_and_the_compared_value_are_named(kernel, dtype, mode):
    emulator.activate(mode=mode)
    flag = torch.tensor([3, 9], dtype=dtype)
    out = torch.zeros(1, dtype=torch.int32)
    wanted = 0x70000000500 if dtype is torch.int64 and kernel is not by_masked_bits else 0x500
    reports: list[str] = []

    def end_the_wait():
        """Keep a report of the waiting kernel, then write the value that it waits for."""
        end = time.monotonic() + 60
        while not (reports and "compared with" in reports[-1]) and time.monotonic() < end:
            reports.append(driver.describe())
            time.sleep(0.01)
        flag[0] = wanted

    thread = threading.Thread(target=end_the_wait)
    thread.start()
    kernel[(1,)](flag, wanted, out)
    thread.join()
    named = r"polling (0x\w+) \(inside argument flag[^\n]*?\), which holds (0x\w+), by '[^']*', compared with (0x\w+)"
    assert {tuple(int(word, 16) for word in words) for words in re.findall(named, reports[-1])} == {
        (flag.data_ptr(), 3, wanted)
    }, reports[-1]
    assert out.item() == 1
    assert "polling" not in driver.describe()
