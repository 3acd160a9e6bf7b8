"""What the compiled code says: a pure reader of amdgcn listings.

Legend: a *listing* is the amdgcn text of one kernel, as Triton keeps it in ``CompiledKernel.asm["amdgcn"]``; a
*frame* is one place of a ``.loc`` line's inline chain, innermost first; an access is *remote* when one of its frames
is a source line that carries the comment ``# remote``. Widths are bytes per lane.

Nothing here runs, compiles or imports a kernel. Everything is safe to call from several threads.
"""

from harness.isa.executed import Executed, ExecutedAccess, executed
from harness.isa.expect import remote_mismatch, remote_widths
from harness.isa.fingerprint import codes_of, fingerprint, of_launch
from harness.isa.mnemonics import access_form
from harness.isa.record import AccessForm, Fingerprint, StaticAccess

__all__ = [
    "AccessForm",
    "Executed",
    "ExecutedAccess",
    "Fingerprint",
    "StaticAccess",
    "access_form",
    "codes_of",
    "executed",
    "fingerprint",
    "of_launch",
    "remote_mismatch",
    "remote_widths",
]
