"""Mode ``check``: raises at once for what a GPU lets pass, or answers with wrong numbers.

    driver = emulator.activate(mode="check")
    driver.carve(heap.data_ptr() + 4096, 1000, "tiles")     # the rest of the heap becomes a red zone
    driver.forget(out)                                      # nobody has written it yet, as after torch.empty
    kernel[grid](heap, out, ...)

===============================  =====================================================================================
``MemoryFault``                  an access outside every allocation, in a red zone, or to LDS that the work-group does
                                 not have; one that is misaligned: a dword or more of global memory wants a multiple of
                                 4, 8 bytes of LDS a multiple of 8, 12 or 16 bytes one of 16
``UndefinedValue``               an address, a branch, EXEC or stored data depends on bits that nobody has written:
                                 of registers and LDS at entry, or of forgotten memory
``MissingWait``                  a register is read or written while a load into it is outstanding
``LdsRace``                      two wavefronts use a byte of LDS without an s_barrier between, or the write was not
                                 waited for before it
``BarrierDivergence``            the wavefronts of a work-group meet at different s_barriers, or one has ended
``NoProgress``                   with ``closed=True``: wavefronts wait for memory that nobody will change
===============================  =====================================================================================

On alignment the mode is stricter than the hardware, unless it is made with ``strict_alignment=False``. Triton compiles
for amdhsa, where LLVM switches on ``unaligned-access-mode`` (AMDGPUUsage, "Target Features") and the kernel driver sets
SH_MEM_CONFIG.alignment_mode to unaligned: plain accesses then work at any address, but slowly. Mostly they come of a
``tl.multiple_of`` or a vector width that does not hold; but LLVM also joins neighbouring 2-byte accesses into wide ones
on its own. Atomics must be aligned always, and a scalar load ignores the two low bits of its address: both are
reported.
"""

from harness.emulator.watch.check.mode import Check

__all__ = ["Check"]
