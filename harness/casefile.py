"""The file that holds one case: what a run writes of a case that did not pass, and what ``iris-harness replay`` reads.

    {"id": ..., "requirement": ..., "group": ..., "nodeid": ..., "case": {"type": ..., "fields": {}}, "request": {...}}

``request`` holds the options of the run, so that the file suffices to repeat the case. A file may come from anybody:
nothing in it is used before it was checked.
"""

from __future__ import annotations

import importlib.util
import json
import os
import re
import shlex
import stat
import sys
import sysconfig
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NoReturn

from harness.errors import UsageError
from harness.evidence import case_id

MOST_BYTES = 1 << 20
"""No case comes near: the largest that the suite draws takes a few kilobytes."""

MOST_NESTING = 16
LEAST_DEADLINE = 1.0
"""Seconds. With less, a case could count as hung because the machine is slow: a file must not decide that."""

DEFAULT_IMPLEMENTATION = "iris_under_test"
ID = re.compile(r"[0-9a-f]{16}")
FOLDER = "cases"
"""Next to the evidence, the folder of the cases that did not pass: one file per case, ``ID.json``."""

_NODE = re.compile(r"(?P<file>[A-Za-z_][\w./-]*\.py)::(?P<test>[A-Za-z_]\w*)(?:\[[^\x00-\x1f\x7f-\x9f]*\])?")


def load(path: Path) -> dict[str, Any]:
    """The one JSON object in ``path``. UsageError, in one line, for everything else: not a regular file, too large, too
    deeply nested, NaN and the like."""
    try:
        # Not blocking, since opening a named pipe would wait for its writer.
        with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise UsageError(f"{path} is not a regular file: name a file that holds the record of one case")
            content = file.read(MOST_BYTES + 1)
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}") from error
    if len(content) > MOST_BYTES:
        raise UsageError(f"{path} is larger than {MOST_BYTES >> 20} MiB: it must hold the record of one case")
    try:
        plain = json.loads(content, parse_constant=_refuse)
    except (ValueError, RecursionError) as error:
        reason = "nested too deeply" if isinstance(error, RecursionError) else f"{type(error).__name__}: {error}"
        raise UsageError(f"{path} is not one JSON object ({reason}): it must hold the record of one case") from None
    if not isinstance(plain, dict):
        raise UsageError(f"{path} holds no case record: it is a JSON {type(plain).__name__}, not an object")
    if any(depth > MOST_NESTING for _, depth in _values(plain)):
        raise UsageError(f"{path} is nested more than {MOST_NESTING} deep: it must hold the record of one case")
    return plain


def case_in(plain: Mapping[str, Any], path: Path) -> Mapping[str, Any]:
    """The case of a record: ``{"type": TEXT, "fields": {NAME: VALUE}}``, where a value is a scalar or a list of such.
    UsageError when that is not what it holds."""
    case = plain.get("case")
    if not isinstance(case, dict) or set(case) != {"type", "fields"}:
        raise UsageError(f"{path} holds no case record: 'case' must be an object with 'type' and 'fields'")
    if not isinstance(case["type"], str) or not isinstance(case["fields"], dict):
        raise UsageError(f"{path} holds no case record: the case's 'type' must be text and its 'fields' an object")
    for value in case["fields"].values():
        if any(isinstance(part, dict) for part, _ in _values(value)):
            raise UsageError(f"{path} holds no case record: a field of a case is never an object")
    return case


def checked(plain: Mapping[str, Any], path: Path, suite: Path) -> dict[str, Any]:
    """A record that may be run: ``nodeid`` is a test of ``suite`` (the folder ``conformance``), ``case`` a case, and
    ``id`` that of the case. A record without ``requirement`` and ``group`` was written by hand: its id is computed.

    UsageError that says what does not fit.
    """
    case = case_in(plain, path)
    texts = {name: plain.get(name) for name in ("nodeid", "requirement", "group", "id")}
    for name, text in texts.items():
        if text is not None and (not isinstance(text, str) or not text.isprintable()):
            raise UsageError(f"{path} holds no case record: {name!r} must be printable text, not {text!r:.100}")
    nodeid, requirement, group, identity = texts.values()
    if nodeid is None:
        raise UsageError(f"{path} holds no case record: it needs 'nodeid' and 'case', as a line of evidence.jsonl has")
    _check_node(nodeid, path, suite)
    if identity is not None and not ID.fullmatch(identity):
        raise UsageError(f"{path}: id {identity!r:.100} is not 16 lower-case hexadecimal digits")
    computed = case_id(requirement or "", group or nodeid, case)
    if identity is not None and requirement is not None and group is not None and identity != computed:
        raise UsageError(
            f"{path}: its id {identity} is not that of its case, {computed}: remove the id of an edited case"
        )
    return {**plain, "id": identity or computed}


def repeat_command(file: Path, implementation: str) -> str:
    """The shell command that runs the case in ``file`` again, from any folder and with this interpreter.

    It names the folders in which the harness and the implementation lie where those are not installed, and an
    implementation that is not the bundled one: a file alone may not choose the code that is run.
    """
    installed = {sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}
    places = dict.fromkeys(filter(None, (folder_of("harness"), folder_of(implementation))))
    further = [place for place in places if place not in installed]
    start = ["env", f"PYTHONPATH={os.pathsep.join(further)}"] if further else []
    apart = ["-P"] if sys.version_info >= (3, 11) else []  # a package of that name in the current folder is not meant
    named = ["--implementation", implementation] if implementation != DEFAULT_IMPLEMENTATION else []
    return shlex.join([*start, sys.executable, *apart, "-m", "harness", "replay", os.path.abspath(file), *named])


def folder_of(package: str) -> str | None:
    """The folder on ``sys.path`` that holds the package, None if none does; the package is not imported."""
    spec = importlib.util.find_spec(package)
    places = list(spec.submodule_search_locations or ()) if spec else []
    return str(Path(places[0]).resolve().parent) if places else None


def _check_node(nodeid: str, path: Path, suite: Path) -> None:
    found = _NODE.fullmatch(nodeid)
    parts = Path(found["file"]).parts if found else ()
    if not found or parts[0] != suite.name or ".." in parts:
        raise UsageError(f"{path}: {nodeid!r:.200} is not a test of the suite: it must be {suite.name}/...py::test")
    file = (suite.parent / found["file"]).resolve()
    if not file.is_relative_to(suite.resolve()) or not file.is_file() or not file.name.startswith("test_"):
        raise UsageError(f"{path}: {found['file']!r} is not a test file of the suite at {suite}")


def _values(value: Any, depth: int = 0) -> Iterator[tuple[Any, int]]:
    """``value`` and everything inside it, each with its depth; without recursion."""
    left = [(value, depth)]
    while left:
        value, depth = left.pop()
        yield value, depth
        inside = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
        left += [(each, depth + 1) for each in inside]


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not JSON")
