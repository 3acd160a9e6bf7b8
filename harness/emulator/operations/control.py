"""Instructions without effect on data: waits, cache operations, priorities, sleeps.

Branches, calls, s_barrier and s_endpgm end a block and belong to ``program``, s_setreg to ``hardware``.
``buffer_wbl2`` and ``buffer_inv`` write back and invalidate caches. This device, whose memory is coherent, does not
have any: they order nothing here and access no register (they are not buffer loads).
"""

from __future__ import annotations

from harness.emulator.operations.table import instruction


@instruction("s_waitcnt s_nop", klass="wait")
def wait(instruction, context):
    return None


@instruction("buffer_wbl2 buffer_inv", klass="wait")
def cache(instruction, context):
    return None


@instruction(
    "s_setprio s_icache_inv s_dcache_inv s_dcache_wb s_dcache_inv_vol s_dcache_wb_vol s_ttracedata "
    "s_wakeup s_incperflevel s_decperflevel s_atc_probe s_atc_probe_buffer s_dcache_discard s_dcache_discard_x2 ds_nop",
    klass="other",
)
def hint(instruction, context):
    return None


@instruction("v_nop v_clrexcp", klass="valu")
def nothing(instruction, context):
    return None
