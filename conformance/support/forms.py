"""The forms in which users call the operations inside a kernel."""

FORMS = ("gluon", "context", "function")
"""A Gluon kernel with ``IrisDeviceCtx``, a Triton kernel with ``DeviceContext``, or a Triton kernel with functions."""


def neighbours(ranks: int, form: str = "gluon", number: int = 0) -> tuple[tuple[int, ...], ...]:
    """Return the targets of each rank: its next rank.

    A kernel with ``DeviceContext`` is compiled for one rank. There only rank ``number % ranks`` acts, so that a case
    has one kernel; cases with consecutive numbers let all ranks act in turn. Example: 2 ranks, "context", number 1 give
    ``((), (0,))``.
    """
    acting = (number % ranks,) if form == "context" else range(ranks)
    return tuple(((rank + 1) % ranks,) if rank in acting else () for rank in range(ranks))
