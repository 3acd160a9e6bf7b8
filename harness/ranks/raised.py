"""Exceptions of the compiler as plain data: from the process that compiles to its rank, and to the group's other ranks.

Text and names only, as JSON. An exception comes back with the type that it had, so that callers catch it as they would
have, and evidence names it; that type must be loaded already, nothing is imported for it.
"""

from __future__ import annotations

import json
import sys
import traceback
from typing import Any

from harness.errors import KernelFault

MOST = 1 << 16
"""Characters of a message or a traceback that are kept."""


class CompilerError(KernelFault):
    """The compiler raised an exception whose type is not known in this process; the text says which."""


class CompilerTraceback(Exception):  # noqa: N818 (it is never raised, only a cause)
    """The traceback of an exception that was raised in the compiler's process, as its cause."""

    def __str__(self) -> str:
        return f"\n{self.args[0]}"


def packed(error: Exception) -> str:
    """The exception with its traceback, as ``restored`` takes it."""
    kind = type(error)
    try:
        message = str(error)
    except Exception as broken:  # noqa: BLE001 (an exception's own __str__ may raise anything)
        message = f"(its text cannot be made: {broken!r})"
    text = "".join(traceback.format_exception(error))
    data = {"module": kind.__module__, "name": kind.__qualname__, "message": _cut(message), "traceback": _cut(text)}
    return json.dumps(data)


def restored(data: str) -> Exception:
    """An exception of the type, message and traceback (as its cause) that were packed. Raises ValueError for others'
    data."""
    found = json.loads(data)
    names = ("module", "name", "message", "traceback")
    if not isinstance(found, dict) or not all(isinstance(found.get(name), str) for name in names):
        raise ValueError(f"expected an object with the texts {', '.join(names)}, got {data[:100]!r}")
    module, name, message, text = (found[key] for key in names)
    kind = _loaded(module, name)
    error = CompilerError(f"{module}.{name}: {message}") if kind is None else _of_type(kind, message)
    error.__cause__ = CompilerTraceback(text)
    return error


def _loaded(module: str, name: str) -> type[Exception] | None:
    found: Any = sys.modules.get(module)
    for part in name.split("."):
        found = getattr(found, part, None)
    return found if isinstance(found, type) and issubclass(found, Exception) else None


def _of_type(kind: type[Exception], message: str) -> Exception:
    """An exception of that type without a call of its constructor, whose arguments only the type itself knows."""
    of_text = type(
        kind.__name__,
        (kind,),
        {
            "__module__": kind.__module__,
            "__qualname__": kind.__qualname__,
            "__init__": lambda self, *args: None,
            "__str__": lambda self: message,
        },
    )
    error: Exception = of_text(message)
    return error


def _cut(text: str) -> str:
    if len(text) <= MOST:
        return text
    half = MOST // 2
    return f"{text[:half]}\n... {len(text) - MOST:,} characters left out ...\n{text[-half:]}"
