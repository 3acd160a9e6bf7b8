"""GEMM all-scatter in Gluon: validate it, and compare its time with a GEMM followed by an all-gather.

    python examples/07_gemm_all_scatter/gluon/benchmark.py -v -b -r 4
    torchrun --nproc_per_node=4 examples/07_gemm_all_scatter/gluon/benchmark.py -v -b

Runs on one GPU per rank, or on the emulated device if there is no GPU (use small sizes there, see the README). Exits
with status 1 if any element on any rank is wrong.
"""

import sys
from pathlib import Path

if not __package__:  # run as a program: name the package that the relative imports refer to
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
    __package__ = "gluon"

from .driver import main, parser
from .gemm_all_scatter import GemmAllScatter

if __name__ == "__main__":
    main(GemmAllScatter, parser(__doc__).parse_args())
