"""Run a program under many schedules of mode ``weak`` and report whether its result is always right.

def exchange(driver):
    flag, data = torch.zeros(...), ...
    with emulator.concurrent_ranks(driver) as ranks: ...
    assert torch.equal(out, expected)

print(explore(exchange, seeds=200))       # holds in 200 schedules | fails with seed 17: ... | relies on unspecified ...
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from harness.emulator.driver.driver import EmulatedDriver, activate
from harness.emulator.watch.choices import Seeded
from harness.emulator.watch.weak import READINGS, Weak
from harness.errors import KernelFault

HOLDS, FAILS, UNSPECIFIED = "holds", "fails", "relies on unspecified behaviour"


@dataclass(frozen=True)
class Verdict:
    """Result of ``explore``: ``outcome`` is ``HOLDS``, ``FAILS`` or ``UNSPECIFIED``.

    ``UNSPECIFIED``: the program fails only in the weaker reading of points that the manuals leave open (``covers`` of
    ``Weak``). ``seed`` and ``error`` are those of the first failing schedule; ``story`` lists its memory events.
    """

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
    """Run ``program(driver)`` once per seed, in both readings; the driver is Triton's active one.

    The program launches kernels and raises AssertionError if a result is wrong; a kernel's fault counts as a failure
    too. Only its kernels, and the program itself between launches, may change memory.
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
