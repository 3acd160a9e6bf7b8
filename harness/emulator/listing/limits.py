"""Limits of the hardware that a listing must respect: checked once per kernel, before anything runs.

Sources: AMD "CDNA3 ISA" and "CDNA4 ISA" (a compute unit's data share, wavefronts of a work-group, registers), LLVM
AMDGPUUsage, "Assembler Directives" and "AMDHSA Kernel Assembler Directives".
"""

from __future__ import annotations

from harness.emulator.faults import ListingError
from harness.emulator.listing.instructions import Listing

ARCHS = ("gfx942", "gfx950")
LDS_BYTES = {"gfx942": 64 * 1024, "gfx950": 160 * 1024}
WAVEFRONT = 64
MAX_THREADS = 1024
MAX_WAVES = MAX_THREADS // WAVEFRONT
# Work-groups of a launch that the emulator executes in hours.
MAX_GROUPS = 2**31 - 1
# A SIMD has 512 vector registers per lane, allocated in units of eight; a work-group's wavefronts use four SIMDs.
SIMDS, VGPRS, VGPR_GRANULE, SGPRS = 4, 512, 8, 102

# The .amdhsa_ directives of gfx942 and gfx950, without that prefix.
_KERNEL_DIRECTIVES = """
    kernel code_object_version group_segment_fixed_size private_segment_fixed_size kernarg_size user_sgpr_count
    user_sgpr_private_segment_buffer user_sgpr_dispatch_ptr user_sgpr_queue_ptr user_sgpr_kernarg_segment_ptr
    user_sgpr_dispatch_id user_sgpr_flat_scratch_init user_sgpr_private_segment_size
    user_sgpr_kernarg_preload_length user_sgpr_kernarg_preload_offset uses_dynamic_stack enable_private_segment
    system_sgpr_private_segment_wavefront_offset system_sgpr_workgroup_id_x system_sgpr_workgroup_id_y
    system_sgpr_workgroup_id_z system_sgpr_workgroup_info system_vgpr_workitem_id next_free_vgpr next_free_sgpr
    accum_offset reserve_vcc reserve_flat_scratch reserve_xnack_mask float_round_mode_32 float_round_mode_16_64
    float_denorm_mode_32 float_denorm_mode_16_64 dx10_clamp ieee_mode fp16_overflow tg_split
    exception_fp_ieee_invalid_op exception_fp_denorm_src exception_fp_ieee_div_zero exception_fp_ieee_overflow
    exception_fp_ieee_underflow exception_fp_ieee_inexact exception_int_div_zero
"""
KERNEL_DIRECTIVES = frozenset(_KERNEL_DIRECTIVES.split())
# Directives of any assembler file; those that begin with .cfi_ describe stack frames to debuggers.
_DIRECTIVES = """
    2byte 4byte 8byte addrsig addrsig_sym align amdgcn_target amdgpu_info amdgpu_lds amdgpu_metadata
    amdgpu_hsa_kernel ascii asciz balign bss byte comm data double end end_amdgpu_info end_amdgpu_metadata
    end_amdhsa_kernel endif equ equiv file fill float globl global hidden ident if ifdef ifndef else int
    internal lcomm loc local long octa org p2align p2alignl p2alignw popsection prefalign previous protected
    pushsection quad reloc section set short single size skip sleb128 space string text type uleb128 value
    version weak word zero
"""
DIRECTIVES = frozenset(_DIRECTIVES.split())


def check_directive(kernel: str, line: int, code: str) -> None:
    """Raise ``ListingError`` for a line whose directive LLVM's assembler does not know."""
    name = code.split(None, 1)[0].removeprefix(".")
    if name.startswith("amdhsa_"):
        known = name.removeprefix("amdhsa_") in KERNEL_DIRECTIVES
    else:
        known = name in DIRECTIVES or name.startswith("cfi_")
    if not known:
        raise ListingError(
            f"kernel {kernel}, listing line {line}: unknown directive .{name}: expected an LLVM assembler listing for "
            f"{' or '.join(ARCHS)}"
        )


def check_arch(listing: Listing, arch: str | None = None) -> None:
    """Raise ``ListingError`` if ``arch`` (if None: each of ``ARCHS``) cannot execute the listing."""
    if listing.arch not in ARCHS:
        raise ListingError(f"kernel {listing.name} was compiled for {listing.arch}, not for {' or '.join(ARCHS)}")
    if arch is not None and listing.arch != arch:
        raise ListingError(
            f"kernel {listing.name} was compiled for {listing.arch}, but the emulated device is a {arch}: "
            f"call emulator.activate({listing.arch!r})"
        )


def check_grid(grid: tuple[int, int, int], threads: int) -> None:
    """Raise ``ValueError`` for a grid that a launch cannot have; ``threads`` is the size of a work-group in x.

    The dispatch packet has 32 bits for the work-items in each dimension (HSA Platform System Architecture, "AQL
    kernel dispatch packet"). The product is limited by the emulator, which executes at best a few million work-groups
    a second.
    """
    limits = ((2**32 - 1) // threads, 2**32 - 1, 2**32 - 1)
    for axis, groups, limit in zip("xyz", grid, limits, strict=True):
        if not 0 <= groups <= limit:
            raise ValueError(f"grid {grid}: {groups} work-groups in {axis}, expected 0 to {limit}")
    if grid[0] * grid[1] * grid[2] > MAX_GROUPS:
        raise ValueError(
            f"grid {grid}: {grid[0] * grid[1] * grid[2]} work-groups, the emulated device executes at most "
            f"{MAX_GROUPS} in a launch: use a smaller grid, or larger blocks"
        )


def check_sizes(listing: Listing, waves: int, lds_bytes: int) -> None:
    """Raise ``ListingError`` if no compute unit can hold a work-group of ``waves`` wavefronts and ``lds_bytes``."""
    kernel, arch, directives = listing.name, listing.arch, listing.directives
    if waves > MAX_WAVES:
        raise ListingError(
            f"kernel {kernel}: {waves} wavefronts in a work-group, which holds {MAX_WAVES} ({MAX_THREADS} work-items): "
            f"use num_warps={MAX_WAVES} or fewer"
        )
    limit = int(listing.metadata.get(".max_flat_workgroup_size", MAX_THREADS))
    if waves * WAVEFRONT > limit:
        raise ListingError(
            f"kernel {kernel}: {waves * WAVEFRONT} work-items in a work-group, but it was compiled for {limit} "
            f"(.max_flat_workgroup_size): compile it with num_warps={waves}"
        )
    width = int(listing.metadata.get(".wavefront_size", WAVEFRONT))
    if width != WAVEFRONT:
        raise ListingError(f"kernel {kernel}: wavefronts of {width} lanes, expected {WAVEFRONT} on {arch}")
    # Triton's metadata has the size, and its directive is 0; hand-written listings set the directive.
    lds_bytes = max(lds_bytes, directives.get("group_segment_fixed_size", 0))
    if lds_bytes > LDS_BYTES[arch]:
        raise ListingError(
            f"kernel {kernel}: {lds_bytes} bytes of LDS, a {arch} has {LDS_BYTES[arch]}: "
            "use smaller blocks or a lower num_stages"
        )
    _check_registers(listing, waves)


def _check_registers(listing: Listing, waves: int) -> None:
    kernel, directives = listing.name, listing.directives
    vectors, scalars = directives.get("next_free_vgpr", 0), directives.get("next_free_sgpr", 0)
    given = -(-vectors // VGPR_GRANULE) * VGPR_GRANULE
    per_simd = -(-waves // SIMDS)
    if given * per_simd > VGPRS:
        raise ListingError(
            f"kernel {kernel}: {vectors} vector registers (.amdhsa_next_free_vgpr) for each of {waves} wavefronts; "
            f"{per_simd} of them share a SIMD's {VGPRS}, {VGPRS // per_simd // VGPR_GRANULE * VGPR_GRANULE} each: "
            f"compile it for num_warps={waves}, or use fewer registers"
        )
    if scalars > SGPRS:
        raise ListingError(
            f"kernel {kernel}: {scalars} scalar registers (.amdhsa_next_free_sgpr), a wavefront has {SGPRS}"
        )
    accum = directives.get("accum_offset", 4)
    if not 4 <= accum <= 256 or accum % 4:
        raise ListingError(f"kernel {kernel}: .amdhsa_accum_offset {accum} is not one of 4, 8, ... 256")
