"""Mode ``check``: raises at once for errors that a GPU ignores, or answers with wrong numbers.

    driver = emulator.activate(mode="check")
    driver.carve(heap.data_ptr() + 4096, 1000, "tiles")     # the rest of the heap becomes a red zone
    driver.forget(out)                                      # its contents are unspecified, as after torch.empty
    kernel[grid](heap, out, ...)

===============================  =====================================================================================
``MemoryFault``                  an access outside every allocation, in a red zone, or to LDS that the work-group does
                                 not have; a misaligned one: a dword or more of global memory needs a multiple of 4
``UndefinedValue``               an address, a branch, EXEC or stored data depends on bits that were never written:
                                 of registers and LDS at entry, or of forgotten memory
``MissingWait``                  a register is read or written while a load into it is outstanding
``LdsRace``                      two wavefronts use a byte of LDS without an s_barrier between, or the write was not
                                 waited for before the s_barrier
``BarrierDivergence``            wavefronts of a work-group wait at different s_barriers (except in ping-pong
                                 schedules, recognised by s_setprio), or one has already ended
``MissingWaitStates``            two instructions with too few wait states (s_nop) between them, in inline assembly:
                                 raised before the kernel runs
``NoProgress``                   with ``closed=True``: wavefronts wait for memory that nothing will change
===============================  =====================================================================================

On alignment the mode is stricter than the hardware, unless it is made with ``strict_alignment=False``. Triton compiles
for amdhsa, where LLVM switches on ``unaligned-access-mode`` (AMDGPUUsage, "Target Features") and the kernel driver sets
SH_MEM_CONFIG.alignment_mode to unaligned: plain accesses then work at any address, but slowly. Usually the cause is a
wrong ``tl.multiple_of`` or vector width; but LLVM also joins neighbouring 2-byte accesses into wide ones on its own.
Atomics must always be aligned, and a scalar load ignores the two low bits of its address: both are reported.
LDS addresses are chosen by the compiler, which relies on that mode: a padded shared layout of Gluon gives
``ds_write_b128`` at multiples of 2 bytes. They are reported only with ``strict_lds_alignment=True``: 8 bytes need a
multiple of 8, 12 and 16 bytes one of 16.
"""

from harness.emulator.watch.check.mode import Check

__all__ = ["Check"]
