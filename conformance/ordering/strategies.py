"""Hypothesis strategies for message passing. They shrink towards one message of one block.

Elements per thread and wavefronts are compiled in, and kernels with ``DeviceContext`` are compiled for each rank too:
these have one shape only.
"""

from __future__ import annotations

from hypothesis import strategies as st

from conformance.ordering.cases import MessageCase

KERNELS = {
    "gluon": ((1, 1, "cas"), (4, 4, "xchg"), (4, 4, "add"), (4, 4, "cas"), (1, 1, "add")),
    "context": ((4, 4, "cas"), (4, 4, "xchg"), (4, 4, "add")),
}
"""Elements per thread, wavefronts, and operation on the flag, by form."""


def messages(dtype: str, shape: str, form: str = "gluon") -> list[st.SearchStrategy[MessageCase]]:
    """Return a strategy for each kernel and operation on a flag in one ``form``."""
    return [_of_kernel(dtype, shape, form, *kernel) for kernel in KERNELS[form]]


@st.composite
def _of_kernel(draw: st.DrawFn, dtype: str, shape: str, form: str, spt: int, warps: int, flag: str) -> MessageCase:
    late = draw(st.sampled_from(["nobody", "producer", "consumer"]))
    return MessageCase(
        dtype=dtype,
        blocks=draw(st.integers(1, 6)),
        spt=spt,
        warps=warps,
        tail=draw(st.integers(0, 63)),
        rounds=draw(st.integers(1, 3)),
        flag=flag,
        shape=shape,
        late=late,
        late_ms=draw(st.integers(1, 20)) if late != "nobody" else 0,
        form=form,
    )
