"""Reports of a hang: the word that a loop polls, its value, and the value with which it is compared."""

from __future__ import annotations

import contextlib
import re
import threading
import time

import pytest
import torch
import triton
import triton.language as tl

from harness import emulator
from harness.emulator.driver import driver
from harness.emulator.watch.waits import Waits

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


@triton.jit
def by_row(row, turn, out):
    """Poll a row of three words, lane i the word i, in a loop that overwrites its addresses and subtracts first."""
    late = 1
    while late != 0:
        _, late = tl.inline_asm_elementwise(
            """v_mbcnt_lo_u32_b32 $0, -1, 0
            v_mbcnt_hi_u32_b32 $0, -1, $0
            v_min_u32 $0, $3, $0
            v_lshlrev_b32 $0, 2, $0
            global_load_dword $0, $0, $2 sc0 sc1
            s_waitcnt vmcnt(0)
            v_sub_u32 $0, $0, $4
            v_cmp_gt_i32 vcc, 0, $0
            s_cmp_lg_u64 vcc, 0
            s_cselect_b32 $1, 1, 0""",
            "=&v,=s,s,s,s,~{vcc},~{scc},~{memory}",
            [row.to(tl.int64), tl.cast(2, tl.int32), turn],
            (tl.int32, tl.int32),
            is_pure=False,
            pack=1,
        )
    tl.store(out, 1)


def report_of_row(watch) -> str:
    """Return the report of a kernel that waits for the second of three words to become 7."""
    device = emulator.activate()
    row, out = torch.tensor([7, 3, 9], dtype=torch.int32), torch.zeros(1, dtype=torch.int32)
    reports: list[str] = []

    def end_the_wait():
        end = time.monotonic() + 60
        while not (reports and "running wavefront" in reports[-1]) and time.monotonic() < end:
            time.sleep(0.2)
            reports.append(driver.describe())
        row[1] = 7

    thread = threading.Thread(target=end_the_wait)
    thread.start()
    with device.watched(watch) if watch is not None else contextlib.nullcontext():
        by_row[(1,)](row, 7, out, num_warps=1)
    thread.join()
    assert out.item() == 1
    return reports[-1].replace(f"{row.data_ptr() + 4:#x}", "the second word")


def test_addresses_that_the_loop_overwrites_are_not_guessed():
    assert "polling" not in report_of_row(None)


def test_a_watch_names_the_word_that_is_late_and_the_value_of_the_word_itself():
    report = report_of_row(Waits(0))
    assert "polling the second word (inside argument row" in report
    assert "which holds 0x3" in report and "compared with 0x7 by 'v_cmp_gt_i32" in report
    assert report.count("polling") == 1, "the words that have arrived are not named"
