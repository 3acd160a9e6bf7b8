"""Instructions without effect on data: waits, cache operations, priorities, sleeps.

Branches, s_barrier and s_endpgm end a block and belong to ``program``. ``buffer_wbl2`` and ``buffer_inv`` write back
and invalidate caches that this
device, whose memory is coherent, does not have: they order nothing here and touch no register (they are not buffer
loads).
``s_setreg`` is not here: the float modes that Triton asks for are fixed, and a kernel that changed them would get wrong
results.
"""

from __future__ import annotations

from harness.emulator.ops.table import instruction


@instruction("s_waitcnt s_waitcnt_vscnt s_nop", klass="wait")
def wait(instruction, context):
    return None


@instruction("buffer_wbl2 buffer_inv", klass="wait")
def cache(instruction, context):
    return None


@instruction("s_setprio s_icache_inv s_dcache_inv s_dcache_wb s_inst_prefetch s_ttracedata", klass="other")
def hint(instruction, context):
    return None
