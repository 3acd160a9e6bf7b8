"""Defects of the bundled library that people have listed, one file for each area.

``DEFECTS`` has all of them; ``REPORTED`` are those that users of such libraries have reported in public.
"""

from mutants.planting import Defect

from .collectives import collective_defects
from .corners import corner_defects
from .fused import fused_defects
from .general import general_defects
from .reported import reported_defects
from .tiles import tile_defects
from .unseen import unseen_defects

__all__ = ["DEFECTS", "REPORTED"]

DEFECTS: tuple[Defect, ...] = (
    *general_defects(), *collective_defects(), *corner_defects(), *fused_defects(), *tile_defects(), *unseen_defects(),
)  # fmt: skip
REPORTED: tuple[Defect, ...] = tuple(reported_defects())
