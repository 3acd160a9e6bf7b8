"""The kinds of events that kernels record, under the numbers that they have in the trace buffers."""

# No postponed annotations here: Triton 3.6's aggregate reads the annotations as classes.
import triton
import triton.language as tl
from triton.language.core import _aggregate as aggregate

__all__ = ["TraceEvent"]


@aggregate
class TraceEvent:
    """The event numbers as constexpr attributes: ``TraceEvent().put`` in a kernel, ``int(TraceEvent().put)`` outside.

    Other numbers may be recorded too; they are exported as "event N".
    """

    load: tl.constexpr
    store: tl.constexpr
    get: tl.constexpr
    put: tl.constexpr
    copy: tl.constexpr
    atomic_add: tl.constexpr
    atomic_sub: tl.constexpr
    atomic_cas: tl.constexpr
    atomic_xchg: tl.constexpr
    atomic_xor: tl.constexpr
    atomic_and: tl.constexpr
    atomic_or: tl.constexpr
    atomic_min: tl.constexpr
    atomic_max: tl.constexpr

    # Line by line: Triton hashes this function's source, and refuses a loop over a dict there.
    @triton.constexpr_function
    def __init__(self):
        self.load = tl.constexpr(0)
        self.store = tl.constexpr(1)
        self.get = tl.constexpr(2)
        self.put = tl.constexpr(3)
        self.copy = tl.constexpr(4)
        self.atomic_add = tl.constexpr(5)
        self.atomic_sub = tl.constexpr(6)
        self.atomic_cas = tl.constexpr(7)
        self.atomic_xchg = tl.constexpr(8)
        self.atomic_xor = tl.constexpr(9)
        self.atomic_and = tl.constexpr(10)
        self.atomic_or = tl.constexpr(11)
        self.atomic_min = tl.constexpr(12)
        self.atomic_max = tl.constexpr(13)
