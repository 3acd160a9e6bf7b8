"""Small libraries, written into a folder: the subjects of queries. None of them is an Iris that works."""

from __future__ import annotations

import textwrap
from pathlib import Path

from fixtures.adapters import adapter_of
from fixtures.capabilities import FILE, Capabilities, Vocabulary, query

PUBLISHED = frozenset({"put", "get", "Iris.zeros", "Iris.heap", "ccl.all_gather"})
BEYOND = frozenset({"Iris.free", "ccl.broadcast"})
NAMES = Vocabulary(PUBLISHED | BEYOND, PUBLISHED, PUBLISHED | BEYOND, BEYOND)
LIBRARY = {
    "__init__.py": """
        def iris(heap_size=1, allocator_type="torch"): ...
        def put(pointer, value, mask=None): ...
        class Iris:
            def __init__(self):
                self.heap = None
            def zeros(self, *size): ...
        """,
    "gluon.py": "class IrisDeviceCtx: ...",
    "ccl/__init__.py": "from .all_gather import all_gather\nclass Config: ...",
    "ccl/all_gather.py": "def all_gather(output, input, ctx): ...",
}
"""It has all published names of ``NAMES`` but ``get``, and none of the extended ones."""


def write(folder: Path, name: str = "small_iris", *, declared: str = "", **changed: str) -> str:
    """Write the library with ``changed`` files (``init`` for ``__init__``), and return its name."""
    files = LIBRARY | {f"{'__init__' if each == 'init' else each}.py": text for each, text in changed.items()}
    for path, text in files.items():
        target = folder / name / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(textwrap.dedent(text), encoding="utf-8")
    if declared:
        (folder / name / FILE).write_text(textwrap.dedent(declared), encoding="utf-8")
    return name


def queried(name: str, *names: str, device: tuple[str, str, str] | None = None) -> Capabilities:
    """Return the answers of the library of that name, which is importable."""
    return query(adapter_of(name), names or NAMES.names, NAMES, device)


def word(answer: Capabilities, name: str) -> str:
    """Return the first word of a state."""
    return answer.states[name].partition(":")[0]
