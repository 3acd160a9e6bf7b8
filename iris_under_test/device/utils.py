"""Clock, compute unit and die of a running kernel: ``read_realtime``, ``get_cu_id``, ``get_xcc_id``, for Triton and
Gluon.

All three are scalars of the calling wavefront (warp), so wavefronts of one program may get different values. They exist
on gfx942 and gfx950, on NVIDIA GPUs, and on the emulated device, which runs gfx942's or gfx950's code.

    @triton.jit
    def kernel(out):
        start = read_realtime()
        ...
        tl.store(out, read_realtime() - start)
"""

import triton

from .targets import intrinsics

__all__ = ["get_cu_id", "get_xcc_id", "read_realtime"]


@triton.jit
def read_realtime():
    """Return an int64 clock that is the same for the whole device and never runs backwards.

    AMD: ticks of 10 ns (``s_memrealtime``, 100 MHz; CDNA3 ISA, SMEM). NVIDIA: nanoseconds, though the value may move in
    steps of up to a microsecond (PTX ISA, ``%globaltimer``). Clocks of two devices need not agree. The compiler neither
    merges nor drops reads, but may move them past memory accesses that do not depend on them.
    """
    return intrinsics().read_realtime()


@triton.jit
def get_cu_id():
    """Return the compute unit, or on NVIDIA GPUs the multiprocessor (``%smid``), as int32.

    AMD: CU_ID, SH_ID and SE_ID from bits 15..8 of the register HW_ID, so 0 to 255 with gaps, and unique within one die
    only; with ``get_xcc_id`` it identifies a compute unit of the device (LLVM AMDGPU, hwreg 4).
    """
    return intrinsics().get_cu_id()


@triton.jit
def get_xcc_id():
    """Return the accelerator die (XCC) as int32, 0 to 7 on an MI300X; 0 if the device is one die.

    From bits 3..0 of the register XCC_ID, which only gfx942 and gfx950 have (LLVM AMDGPU, hwreg 20).
    """
    return intrinsics().get_xcc_id()
