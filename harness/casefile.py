"""The case file: a run writes one for each case that did not pass, and ``iris-harness replay`` reads it.

    {"id": ..., "requirement": ..., "group": ..., "nodeid": ..., "case": {"type": ..., "fields": {}}, "request": {...}}

``case`` may also have ``data``: the other arguments that the test passes to the rank function. A replay takes them from
the test again; the ``data`` in the file only identifies the call within the test.

``request`` holds the options of the run, so that the file suffices to repeat the case. The file is untrusted: every
field is checked before it is used.
"""

from __future__ import annotations

import json
import os
import re
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NoReturn

from harness import adversary
from harness.errors import UsageError
from harness.evidence import case_id

MOST_BYTES = 1 << 20
"""Far more than any case needs: the largest that the suite draws takes a few kilobytes."""

MOST_NESTING = 16
LEAST_DEADLINE = 1.0
"""Seconds. With a shorter deadline a case could count as hung on a slow machine; a case file must not cause that."""

ID = re.compile(r"[0-9a-f]{16}")
FOLDER = "cases"
"""Next to the evidence, the folder of the cases that did not pass: one file per case, ``ID.json``."""

_NODE = re.compile(r"(?P<file>[A-Za-z_][\w./-]*\.py)::(?P<test>[A-Za-z_]\w*)(?:\[[^\x00-\x1f\x7f-\x9f]*\])?")


def load(path: Path) -> dict[str, Any]:
    """Return the JSON object in ``path``.

    Raises UsageError, in one line, for anything else: not a regular file, too large, too deeply nested, NaN and the
    like.
    """
    try:
        # Non-blocking: opening a named pipe would wait for its writer.
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
    """Return the case of a record: ``{"type": TEXT, "fields": {NAME: VALUE}}``, optionally with
    ``"data": {NAME: VALUE}``, and with ``"memory": TEXT`` of ``harness.adversary``. A value is a scalar or a (nested)
    list of scalars. Raises UsageError for anything else."""
    case = plain.get("case")
    if not isinstance(case, dict) or set(case) - {"data", adversary.KEY} != {"type", "fields"}:
        raise UsageError(f"{path} holds no case record: 'case' must be an object with 'type' and 'fields'")
    if not isinstance(case["type"], str) or not isinstance(case["fields"], dict):
        raise UsageError(f"{path} holds no case record: the case's 'type' must be text and its 'fields' an object")
    data = case.get("data", {})
    if not isinstance(data, dict):
        raise UsageError(f"{path} holds no case record: the case's 'data' must be an object")
    try:
        adversary.check(case.get(adversary.KEY))
    except UsageError as error:
        raise UsageError(f"{path} holds no case record: {error}") from None
    for value in (*case["fields"].values(), *data.values()):
        if any(isinstance(part, dict) for part, _ in _values(value)):
            raise UsageError(
                f"{path} holds no case record: a field of a case must be a scalar or a list, not an object"
            )
    return case


def checked(plain: Mapping[str, Any], path: Path, suite: Path) -> dict[str, Any]:
    """Return the record ``plain`` after checking that it may be run: ``nodeid`` is a test of ``suite`` (the folder
    ``conformance``), ``case`` is a case, and ``id`` is the id of that case.

    A record without ``requirement`` and ``group`` was written by hand: its id is computed. Raises UsageError that names
    the first field that is wrong.
    """
    case = case_in(plain, path)
    texts = {name: plain.get(name) for name in ("nodeid", "requirement", "group", "id")}
    for name, text in texts.items():
        if text is not None and (not isinstance(text, str) or not text.isprintable()):
            raise UsageError(f"{path} holds no case record: {name!r} must be printable text, not {text!r:.100}")
    nodeid, requirement, group, identity = texts.values()
    if nodeid is None:
        raise UsageError(f"{path} holds no case record: it needs 'nodeid' and 'case', like a line of evidence.jsonl")
    _check_node(nodeid, path, suite)
    if identity is not None and not ID.fullmatch(identity):
        raise UsageError(f"{path}: id {identity!r:.100} is not 16 lower-case hexadecimal digits")
    computed = case_id(requirement or "", group or nodeid, case)
    if identity is not None and requirement is not None and group is not None and identity != computed:
        raise UsageError(
            f"{path}: its id {identity} is not that of its case, {computed}: remove the id of an edited case"
        )
    return {**plain, "id": identity or computed}


def _check_node(nodeid: str, path: Path, suite: Path) -> None:
    match = _NODE.fullmatch(nodeid)
    parts = Path(match["file"]).parts if match else ()
    if not match or parts[0] != suite.name or ".." in parts:
        raise UsageError(f"{path}: {nodeid!r:.200} is not a test of the suite: such as {suite.name}/FILE.py::TEST")
    file = (suite.parent / match["file"]).resolve()
    if not file.is_relative_to(suite.resolve()) or not file.is_file() or not file.name.startswith("test_"):
        raise UsageError(f"{path}: {match['file']!r} is not a test file of the suite at {suite}")


def _values(value: Any, depth: int = 0) -> Iterator[tuple[Any, int]]:
    """Yield ``value`` and everything inside it, each with its depth; without recursion."""
    left = [(value, depth)]
    while left:
        value, depth = left.pop()
        yield value, depth
        inside = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
        left += [(each, depth + 1) for each in inside]


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not JSON")
