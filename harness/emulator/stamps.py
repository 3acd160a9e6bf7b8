"""Stamps of numba's code on disk: it is stale once any file has changed whose code is compiled into the function.

Numba itself looks at the file of the function that is kept, and not at those of the functions that it calls.
"""

from __future__ import annotations

import hashlib
import os
import re
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from numba.core import caching

_EMULATOR = Path(__file__).resolve().parent
_NATIVE = _EMULATOR / "native"
_IMPORT = re.compile(r"^(?:from|import) harness\.emulator\.native(?:\.(\w+))?(?: import (\([^)]*\)|.*))?", re.MULTILINE)


def use() -> None:
    """Have numba keep functions of the emulator, and no others, under the stamp of this module.

    Concerns functions declared afterwards. If NUMBA_CACHE_LOCATOR_CLASSES is set, only those classes are used.
    """
    known = caching.CacheImpl._locator_classes
    if _LOCATORS[0] not in known:
        known[:0] = _LOCATORS


@cache
def stamp_of(file: Path) -> str:
    """Return a hash of a file and of the files of ``native`` that it imports, also indirectly."""
    names = [(os.path.relpath(path, _EMULATOR), _digest(path)) for path in sorted(sources_of(file))]
    return hashlib.sha256(repr(names).encode()).hexdigest()


def sources_of(file: Path) -> set[Path]:
    """Return the file and the files of ``native`` that it imports, also indirectly: compiled functions call no other.

    Imports inside of functions are not seen; compiled functions have none.
    """
    sources, left = set(), [file]
    while left:
        path = left.pop()
        if path not in sources:
            sources.add(path)
            left += _imported(path)
    return sources


@cache
def _digest(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()


@cache
def _imported(file: Path) -> list[Path]:
    files = []
    for module, names in _IMPORT.findall(file.read_text()):
        stems = [module] if module else re.findall(r"\w+", names)
        files += [path for stem in stems if (path := _NATIVE / f"{stem}.py").is_file()]
    return files


# The classes below are called by numba only.
_Locator = caching._SourceFileBackedLocatorMixin if TYPE_CHECKING else object


class _Stamped(_Locator):  # type: ignore[valid-type, misc]
    @classmethod
    def from_function(cls, function: Any, file: str) -> Any:
        return super().from_function(function, file) if _EMULATOR in Path(file).resolve().parents else None

    def get_source_stamp(self) -> str:
        return stamp_of(Path(self._py_file).resolve())


class _UserProvided(_Stamped, caching.UserProvidedCacheLocator):
    pass


class _InTree(_Stamped, caching.InTreeCacheLocator):
    pass


class _UserWide(_Stamped, caching.UserWideCacheLocator):
    pass


_LOCATORS = (_UserProvided, _InTree, _UserWide)
