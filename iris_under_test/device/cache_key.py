"""Cache key of an aggregate class that a kernel receives as a constexpr parameter."""

import hashlib

__all__ = ["SourceHash"]


class SourceHash:
    """Class attribute ``cache_key``: a hash of the aggregate's source and of all functions that it calls.

    Triton's disk cache identifies a constexpr by its ``cache_key``, or else by ``str()``, which for a class is only its
    name: after an edit of a method, a stale binary would run. Computed on first use.
    """

    def __get__(self, instance, owner):
        digest = hashlib.sha256()
        for member in owner.hash_attrs:
            digest.update(member.cache_key.encode())
        return digest.hexdigest()
