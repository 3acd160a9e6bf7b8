"""Device code that differs between GPU vendors: one file per vendor, chosen by the target of the active driver.

To add a vendor, write one file with the functions in ``amd.__all__``, and one line in ``intrinsics``. The modules that
call the functions describe them: ``fences``, ``signals``, ``flagged``, ``operands``, ``utils``, ``debug``.

    @triton.jit
    def publish():
        intrinsics().publish()
"""

from types import ModuleType
from typing import Any

import triton
from triton.language.core import _aggregate as aggregate
from triton.language.target_info import current_target

from . import amd, nvidia

__all__ = ["intrinsics"]


@triton.constexpr_function
def _no_fields(self):
    pass


def _functions(module: ModuleType) -> Any:
    """Return the functions of a vendor's file as static methods of an aggregate.

    Triton's caches follow the functions of an aggregate that is named in compiled code, but not those that are reached
    through a table of modules: after an edit of a function, a stale binary would run.
    """
    members = {name: staticmethod(getattr(module, name)) for name in module.__all__}
    members = {"__init__": _no_fields, "__annotations__": {}, "__module__": __name__, **members}
    return aggregate(type(module.__name__, (), members))


_AMD, _NVIDIA = _functions(amd), _functions(nvidia)


@triton.constexpr_function
def intrinsics():
    """Return the functions for the target of the active driver; NVIDIA's if there is no driver.

    (``triton.language.target_info.is_hip`` answers the same way for code that is compiled without a driver.)
    """
    target = current_target()
    backend = "cuda" if target is None else target.backend
    vendors = {"hip": _AMD, "cuda": _NVIDIA}
    if backend not in vendors:
        raise NotImplementedError(f"no device code for the backend {backend!r}: expected one of {sorted(vendors)}")
    return vendors[backend]
