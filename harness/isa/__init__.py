"""Readers of compiled code: amdgcn listings, PTX and SASS.

Terms: a *listing* is the amdgcn text of one kernel, as Triton keeps it in ``CompiledKernel.asm["amdgcn"]``; a
*frame* is one place of a ``.loc`` line's inline chain, innermost first; an access is *remote* if its address comes from
the heap bases (``flow``), or, where the emulated device executed it, if it was in another rank's memory. Widths are
bytes per lane.

The readers never run, compile or import a kernel. All functions are thread-safe.
"""

from harness.isa.executed import Executed, ExecutedAccess, executed
from harness.isa.expect import remote_mismatch, remote_widths
from harness.isa.fingerprint import codes_of, fingerprint, of_launch, roots_of
from harness.isa.flow.origin import Roots
from harness.isa.mnemonics import access_form
from harness.isa.record import FLAG_BYTES, AccessForm, Fingerprint, StaticAccess

__all__ = [
    "FLAG_BYTES",
    "AccessForm",
    "Executed",
    "ExecutedAccess",
    "Fingerprint",
    "Roots",
    "StaticAccess",
    "access_form",
    "codes_of",
    "executed",
    "fingerprint",
    "of_launch",
    "remote_mismatch",
    "remote_widths",
    "roots_of",
]
