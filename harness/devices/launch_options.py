"""Compiler options of a launch that only another vendor's target has: they have no effect and raise nothing.

Triton refuses a launch with ``waves_per_eu=2`` on an NVIDIA GPU, although the option only tunes the code for AMD GPUs.
A library that passes such options everywhere is judged by what its kernels do.
"""

from __future__ import annotations

import functools
from collections.abc import Collection, Mapping
from typing import Any

OPTIONS: Mapping[str, frozenset[str]] = {
    "hip": frozenset({"waves_per_eu", "matrix_instr_nonkdim", "kpack", "schedule_hint"}),
    "cuda": frozenset({"maxnreg", "launch_pdl"}),
}
"""Options that only one of Triton's back ends has."""

_ALL = frozenset[str]().union(*OPTIONS.values())


def foreign(given: Collection[str], backend: str, parameters: Collection[str]) -> frozenset[str]:
    """Return which of the keywords ``given`` are options of other back ends, and not ``parameters`` of the kernel."""
    others = frozenset[str]().union(*(names for owner, names in OPTIONS.items() if owner != backend))
    return (others & frozenset(given)) - frozenset(parameters)


def ignore_foreign() -> None:
    """Make launches in this process ignore options of other back ends. May be called again."""
    from triton.runtime import driver
    from triton.runtime.jit import JITFunction

    run: Any = JITFunction.run
    if hasattr(run, "__wrapped__"):
        return

    @functools.wraps(run)
    def without_foreign(self: Any, *arguments: Any, **keywords: Any) -> Any:
        if not _ALL.isdisjoint(keywords):
            backend = driver.active.get_current_target().backend
            for name in foreign(keywords, backend, self.arg_names):
                del keywords[name]
        return run(self, *arguments, **keywords)

    JITFunction.run = without_foreign
