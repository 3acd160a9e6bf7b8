"""Defects by engineers who had read the library and its specification, and no test, in two rounds.

The nearest tests of the gate missed 20 of the 56 of the first round, and 35 of the 64 of the second. The suite has a
case of the kind of each since.
"""

from mutants.listed.unseen.benchmarks import benchmark_defects
from mutants.listed.unseen.collectives import collective_defects
from mutants.listed.unseen.device import device_defects
from mutants.listed.unseen.fused import fused_defects
from mutants.listed.unseen.host import host_defects
from mutants.listed.unseen.kernels import kernel_defects
from mutants.planting import Defect

__all__ = ["unseen_defects"]


def unseen_defects() -> list[Defect]:
    """Return the defects, named "unseen: AREA: ..."."""
    return [
        *device_defects(), *kernel_defects(), *collective_defects(), *fused_defects(), *benchmark_defects(),
        *host_defects(),
    ]  # fmt: skip
