"""Mode weak on compiled kernels: a correct exchange between two ranks holds, and every fence it needs is missed."""

import re

import pytest
import torch

from harness import emulator
from harness.emulator.driver.explore import FAILS, HOLDS, UNSPECIFIED, explore
from harness.emulator.watch import Seeded
from harness.errors import KernelFault
from tests.emulator.watch import weak_kernels as kernels

SEEDS = 200


@pytest.fixture(autouse=True)
def _no_driver_left():
    yield
    emulator.deactivate()


def exchange(warps: int = 1):
    """Return a program for ``explore``: rank 0 sends a question, rank 1 answers."""

    def program(driver) -> None:
        n = 64 * warps
        question = torch.arange(1, n + 1, dtype=torch.int32)
        inboxes, out = torch.zeros(2, n, dtype=torch.int32), torch.zeros(n, dtype=torch.int32)
        flags = torch.zeros(2, 32, dtype=torch.int32)
        with emulator.concurrent_ranks(driver) as ranks:
            with ranks.rank(0):
                kernels.question[(1,)](
                    question, inboxes[1], flags[1], inboxes[0], flags[0], out, 0, n, warps, num_warps=warps
                )
            with ranks.rank(1):
                kernels.answer[(1,)](inboxes[1], flags[1], inboxes[0], flags[0], 0, n, warps, num_warps=warps)
        assert torch.equal(out, question + 1), "the answer is wrong"

    return program


def listings(warps: int = 1) -> dict[str, str]:
    """Return the machine code of both kernels."""
    driver = emulator.activate(mode="weak", choices=0)
    texts: dict[str, str] = {}
    driver.rewrite = texts.setdefault
    exchange(warps)(driver)
    return texts


def mutants(text: str):
    """Yield (description, changed listing) for each fence, wait and scope bit after the prologue."""
    lines = text.split("\n")
    start = text[: text.index(".p2align\t8", text.index("s_branch"))].count("\n")
    for i, line in enumerate(lines):
        code = line.split(";")[0].strip()
        if i < start:
            continue
        if code.startswith(("buffer_wbl2", "buffer_inv", "s_waitcnt")):
            yield f"line {i + 1}: without {code!r}", lines[:i] + lines[i + 1 :]
        # An atomic's sc0 does not set a scope; it requests the old value.
        for bit in ("sc1",) if "atomic" in code else ("sc0", "sc1"):
            if re.search(rf"\b{bit}\b", code):
                weaker = code.replace(f" {bit}", "", 1)
                yield f"line {i + 1}: {code!r} without {bit}", [*lines[:i], weaker, *lines[i + 1 :]]


# A poll at agent scope still sees everything that reached the system, and the flag is not read afterwards; the last
# signal of ``answer`` reaches the system when that kernel ends, right after it.
HARMLESS = re.compile(r"atomic_cmpswap.* without sc1|answer, .*atomic_swap.* without sc1")


def failing_seed(driver, program) -> int | None:
    for seed in range(SEEDS):
        driver.watch.restart(Seeded(seed))
        try:
            program(driver)
        except (AssertionError, KernelFault):
            return seed
    return None


def test_a_correct_exchange_holds_in_both_readings():
    verdict = explore(exchange(), SEEDS)
    assert verdict.outcome == HOLDS, str(verdict)
    assert verdict.schedules == 2 * SEEDS


@pytest.mark.slow
def test_every_missing_fence_wait_and_scope_bit_is_noticed():
    program, texts = exchange(), listings()
    driver = emulator.activate(mode="weak", choices=0)
    survivors, tried = [], 0
    for kernel, text in texts.items():
        for mutation, lines in mutants(text):
            mutant = "\n".join(lines)
            driver.rewrite = lambda name, text, kernel=kernel, mutant=mutant: mutant if name == kernel else text
            tried += 1
            if failing_seed(driver, program) is None:
                survivors.append(f"{kernel}, {mutation}")
    assert tried >= 20
    assert [s for s in survivors if not HARMLESS.search(s)] == []


@pytest.mark.slow
def test_the_exchange_by_several_wavefronts_relies_on_unspecified_behaviour():
    """Triton puts only an s_barrier between the wavefronts' stores and the leader's write-back."""
    verdict = explore(exchange(warps=4), SEEDS)
    assert verdict.outcome == UNSPECIFIED, str(verdict)
    assert "the answer is wrong" in str(verdict)
    assert any("lands at" in line for line in verdict.story)


def test_draining_every_wavefront_before_the_barrier_holds_in_both_readings():
    program = exchange(warps=4)

    def drained(driver) -> None:
        driver.rewrite = lambda _, text: text.replace("\ts_barrier", "\ts_waitcnt vmcnt(0)\n\ts_barrier")
        program(driver)

    assert explore(drained, 60).outcome == HOLDS


def without_acquire(driver) -> None:
    driver.rewrite = lambda name, text: text.replace("buffer_inv sc0 sc1", "s_nop 0") if name == "answer" else text
    exchange()(driver)


def test_the_same_seed_gives_the_same_run():
    verdict = explore(without_acquire, SEEDS)
    assert verdict.outcome == FAILS
    again = explore(without_acquire, [verdict.seed])
    assert [_placeless(line) for line in again.story] == [_placeless(line) for line in verdict.story]
    assert again.error == verdict.error


def _placeless(line: str) -> str:
    return re.sub(r"0x[0-9a-f]+", "", line)


def test_waiting_for_ever_names_what_is_polled():
    driver = emulator.activate(mode="weak", choices=0)

    def without_signal(name, text):
        return re.sub(r"\tglobal_atomic_swap .*", "\ts_nop 0", text) if name == "question" else text

    driver.rewrite = without_signal
    polled = r"polling 0x[0-9a-f]+ \(inside argument flag.*which holds 0x0"
    with pytest.raises(emulator.NoProgress, match=polled) as caught:
        exchange()(driver)
    assert "kernel question" in str(caught.value)
    assert "kernel answer" in str(caught.value)
