"""GEMM all-scatter in Gluon: is it right, and how fast is it beside a GEMM followed by an all-gather.

    python examples/07_gemm_all_scatter/gluon/benchmark.py -v -b -r 4
    torchrun --nproc_per_node=4 examples/07_gemm_all_scatter/gluon/benchmark.py -v -b

Runs on a GPU per rank, or on the emulated device where there is none (there take small sizes, see the README). Exit
status 1 if any element on any rank is wrong.
"""

from driver import main, parser
from gemm_all_scatter import GemmAllScatter

if __name__ == "__main__":
    main(GemmAllScatter, parser(__doc__).parse_args())
