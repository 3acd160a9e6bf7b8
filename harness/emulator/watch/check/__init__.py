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

On alignment the check is stricter than the hardware: Triton compiles for the amdhsa target, where LLVM switches on
``unaligned-access-mode`` and the driver sets SH_MEM_CONFIG.alignment_mode to unaligned, so such accesses work, slowly
(LLVM AMDGPUUsage, "Target Features"; in dword mode the hardware clears the low address bits, AMD "CDNA3 ISA"). But the
compiler uses the wide forms only where it was told that addresses are multiples: what the check finds is a
``tl.multiple_of`` or a vector width that does not hold. Alignment of scalar loads is checked too: there the hardware
always ignores the two low bits.
"""

from harness.emulator.watch.check.mode import Check

__all__ = ["Check"]
