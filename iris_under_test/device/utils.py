"""Where and when a kernel runs: ``read_realtime``, ``get_cu_id``, ``get_xcc_id``, for Triton and for Gluon kernels.

All three are scalars of the wavefront (warp) that asks, so wavefronts of one program may differ. They exist on gfx942
and gfx950, on NVIDIA GPUs, and on the emulated device, which runs gfx942's or gfx950's code.

    @triton.jit
    def kernel(out):
        start = read_realtime()
        ...
        tl.store(out, read_realtime() - start)
"""

import triton
import triton.language as tl
from triton.language.target_info import is_hip, is_hip_cdna3, is_hip_cdna4

__all__ = ["get_cu_id", "get_xcc_id", "read_realtime"]


@triton.jit
def read_realtime():
    """Returns int64: a clock that is the same for the whole device and never runs backwards.

    AMD: ticks of 10 ns (``s_memrealtime``, 100 MHz; CDNA3 ISA, SMEM). NVIDIA: nanoseconds, though the value may move in
    steps of up to a microsecond (PTX ISA, ``%globaltimer``). Clocks of two devices need not agree. Reads are neither
    merged nor dropped by the compiler, but may move past memory accesses that do not depend on them.
    """
    if is_hip():
        # Scalar memory answers out of order with the rest, so it is waited for here: the compiler does not see into
        # the text. (Triton's own memrealtime waits for vector memory, which says nothing about this read.)
        now = tl.inline_asm_elementwise(
            "s_memrealtime $0\ns_waitcnt lgkmcnt(0)", "=s", [], dtype=tl.int64, is_pure=False, pack=1
        )
    else:
        now = tl.inline_asm_elementwise("mov.u64 $0, %globaltimer;", "=l", [], dtype=tl.int64, is_pure=False, pack=1)
    return now


@triton.jit
def get_cu_id():
    """Returns int32: the compute unit, or on NVIDIA GPUs the multiprocessor (``%smid``).

    AMD: CU_ID, SH_ID and SE_ID as the register HW_ID holds them, bits 15..8 of it, so 0 to 255 with gaps, and unique
    within one die only: together with ``get_xcc_id`` it names a compute unit of the device (LLVM AMDGPU, hwreg 4).
    """
    if is_hip():
        unit = tl.inline_asm_elementwise(
            "s_getreg_b32 $0, hwreg(HW_REG_HW_ID, 8, 8)", "=s", [], dtype=tl.int32, is_pure=True, pack=1
        )
    else:
        unit = tl.inline_asm_elementwise("mov.u32 $0, %smid;", "=r", [], dtype=tl.int32, is_pure=True, pack=1)
    return unit


@triton.jit
def get_xcc_id():
    """Returns int32: the accelerator die (XCC), 0 to 7 on an MI300X; 0 where a device is one die.

    From bits 3..0 of the register XCC_ID, which only gfx942 and gfx950 have (LLVM AMDGPU, hwreg 20).
    """
    if is_hip_cdna3() or is_hip_cdna4():
        die = tl.inline_asm_elementwise(
            "s_getreg_b32 $0, hwreg(HW_REG_XCC_ID, 0, 4)", "=s", [], dtype=tl.int32, is_pure=True, pack=1
        )
    else:
        die = tl.cast(0, tl.int32)
    return die
