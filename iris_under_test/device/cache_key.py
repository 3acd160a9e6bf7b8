"""What Triton's disk cache must know of an aggregate class that a kernel receives as a constexpr parameter."""

import hashlib
import inspect

from triton.runtime.jit import JITCallable

__all__ = ["SourceHash"]


class SourceHash:
    """Class attribute ``cache_key``: a hash of the aggregate's source and of all that it calls.

    Triton's disk cache keys a constexpr by its ``cache_key``, else by ``str()``, which for a class is only its name: an
    edited method would run from a stale binary. Computed on first use.
    """

    def __get__(self, instance, owner):
        digest = hashlib.sha256()
        for member in owner.hash_attrs:
            source = member.cache_key if isinstance(member, JITCallable) else inspect.getsource(member)
            digest.update(source.encode())
        return digest.hexdigest()
