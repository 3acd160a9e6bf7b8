"""Run a program under many schedules of mode ``weak``, and say whether it holds.

def exchange(driver):
    flag, data = torch.zeros(...), ...
    with emulator.together(driver) as ranks: ...
    assert torch.equal(out, expected)

print(explore(exchange, seeds=200))       # holds in 200 schedules | fails with seed 17: ... | relies on unspecified ...
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from harness.emulator.driver import EmulatedDriver, activate
from harness.emulator.watch.choices import Seeded
from harness.emulator.watch.weak import READINGS, Weak
from harness.errors import KernelFault

HOLDS, FAILS, UNSPECIFIED = "holds", "fails", "relies on unspecified behaviour"


@dataclass(frozen=True)
class Verdict:
    """``outcome`` is ``HOLDS``, ``FAILS`` or ``UNSPECIFIED``: it fails only in the weaker reading of what the
    manuals leave open (``covers`` of ``Weak``). ``seed`` and ``error`` are of the first failing schedule, ``story``
    what memory did."""

    outcome: str
    schedules: int
    seed: int | None = None
    error: str = ""
    story: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        if self.seed is None:
            return f"{self.outcome} in {self.schedules} schedules"
        return "\n".join([f"{self.outcome}, with seed {self.seed}: {self.error}", *self.story])


def explore(
    program: Callable[[EmulatedDriver], None], seeds: int | Iterable[int] = 200, arch: str = "gfx942", xcds: int = 8
) -> Verdict:
    """Run ``program(driver)`` once a seed, in both readings; the driver is Triton's active one.

    The program launches kernels and raises AssertionError when it sees a wrong result; a kernel's fault counts as well.
    Memory must be changed by its kernels and by the program between launches only.
    """
    seeds = range(seeds) if isinstance(seeds, int) else list(seeds)
    done = 0
    for covers, outcome in zip(READINGS, (FAILS, UNSPECIFIED), strict=True):
        driver = activate(arch, mode="weak", choices=0, covers=covers, xcds=xcds)
        watch = driver.watch
        assert isinstance(watch, Weak)  # sanity check
        for seed in seeds:
            watch.restart(Seeded(seed))
            done += 1
            try:
                program(driver)
            except (AssertionError, KernelFault) as error:
                return Verdict(outcome, done, seed, str(error), watch.story())
            finally:
                driver.drain_launches()
    return Verdict(HOLDS, done)
