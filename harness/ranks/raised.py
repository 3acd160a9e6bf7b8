"""Exceptions of the compiler as plain data: from the process that compiles to its rank, and to the group's other ranks.

The data is text and names only, as JSON. An exception is restored with its own type, so that callers can catch it and
evidence names it; that type must be loaded already, since nothing is imported for it.
"""

from __future__ import annotations

import json
import sys
import traceback
from typing import Any

from harness.errors import KernelFault

TEXT_LIMIT = 1 << 16
"""Characters of a message or a traceback that are kept."""


class CompilerError(KernelFault):
    """Stand-in for an exception of the compiler whose type is not loaded in this process; the text names the type."""


class CompilerTraceback(Exception):  # noqa: N818 (it is never raised, only a cause)
    """Traceback of an exception that was raised in the compiler's process; the exception's cause."""

    def __str__(self) -> str:
        return f"\n{self.args[0]}"


def packed(error: Exception) -> str:
    """Return the exception and its traceback as text, from which ``restored`` makes the exception again."""
    kind = type(error)
    try:
        message = str(error)
    except Exception as broken:  # noqa: BLE001 (an exception's own __str__ may raise anything)
        message = f"(its text cannot be made: {broken!r})"
    text = "".join(traceback.format_exception(error))
    data = {"module": kind.__module__, "name": kind.__qualname__, "message": _cut(message), "traceback": _cut(text)}
    return json.dumps(data)


def restored(data: str) -> Exception:
    """Return the exception that was packed: type, message, and traceback as its cause. ValueError for other data."""
    packed_error = json.loads(data)
    names = ("module", "name", "message", "traceback")
    if not isinstance(packed_error, dict) or not all(isinstance(packed_error.get(name), str) for name in names):
        raise ValueError(f"expected an object with the texts {', '.join(names)}, got {data[:100]!r}")
    module, name, message, text = (packed_error[key] for key in names)
    kind = _loaded(module, name)
    error = CompilerError(f"{module}.{name}: {message}") if kind is None else _of_type(kind, message)
    error.__cause__ = CompilerTraceback(text)
    return error


def _loaded(module: str, name: str) -> type[Exception] | None:
    value: Any = sys.modules.get(module)
    for part in name.split("."):
        value = getattr(value, part, None)
    return value if isinstance(value, type) and issubclass(value, Exception) else None


def _of_type(kind: type[Exception], message: str) -> Exception:
    """Return an exception of that type without calling its constructor, whose arguments are unknown here."""
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
    if len(text) <= TEXT_LIMIT:
        return text
    half = TEXT_LIMIT // 2
    return f"{text[:half]}\n... {len(text) - TEXT_LIMIT:,} characters left out ...\n{text[-half:]}"
