"""Reader of the table of requirements in a ``requirements.toml``.

[[requirement]]
id = "RMA-PUT-001"
statement = "put copies the caller's elements to the target rank's heap."
source = "docs/spec/rma.md#put"         # where it is written; the suite's name a section of the specification
covers = ["IrisDeviceCtx.put"]          # the public names that it is about
needs = ["IrisDeviceCtx.put"]           # optional: without these capabilities of the library it is unsupported
api = "extended"                      # optional: published or extended

[[requirement.form]]                    # the same for another form of it: an id with its own verdict
id = "RMA-PUT-002"
of = "a method of DeviceContext"
source = "docs/spec/rma.md#methods-of-devicecontext"
covers = ["DeviceContext.put"]

In a table that begins with ``extended = [...]``, the names beyond the published API, a requirement without these keys
needs what it covers, and its API is extended if it needs one of these names. In other tables it needs nothing.
"""

from __future__ import annotations

import difflib
import sys
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from harness.errors import UsageError
from harness.evidence.records import APIS, EXTENDED, PUBLISHED, Requirement

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

_KEYS = ("id", "statement", "source", "covers", "needs", "api", "form")
_FORM_KEYS = ("id", "of", *_KEYS[2:-1])


def read_table(path: Path) -> dict[str, Requirement]:
    """Return the requirements and their forms by id.

    Raises UsageError, in one line, if the file cannot be read, or an entry lacks a key, has a value of the wrong type,
    or repeats an id.
    """
    plain = _plain(path)
    table: dict[str, Requirement] = {}
    for requirement in _requirements(plain, path):
        if requirement.id in table:
            raise UsageError(f"{path.name}: requirement {requirement.id} occurs twice: give each its own id")
        table[requirement.id] = requirement
    return table


def extended_names(path: Path) -> frozenset[str]:
    """Return the names beyond the published API that a table lists."""
    return frozenset(_extended(_plain(path), path) or ())


def form_statement(of: str, statement: str) -> str:
    """Return the statement of a form as a whole sentence: ``As a function: put copies ...``."""
    first = statement.partition(" ")[0]
    return f"As {of}: {statement[0].lower() + statement[1:] if first.istitle() else statement}"


def _plain(path: Path) -> dict[str, Any]:
    try:
        plain: dict[str, Any] = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise UsageError(f"cannot read {path}: {error}") from error
    _check_keys(plain, ("requirement", "extended"), path.name)
    return plain


def _check_keys(entry: Mapping[str, Any], known: tuple[str, ...], where: str) -> None:
    for key in entry:
        if key not in known:
            near = difflib.get_close_matches(key, known, n=1)
            hint = f"similar is {near[0]}" if near else f"the keys are {', '.join(known)}"
            raise UsageError(f"{where}: unknown key {key!r:.60}; {hint}")


def _extended(plain: Mapping[str, Any], path: Path) -> frozenset[str] | None:
    """Return the table's names beyond the published API; None if it has no such list."""
    names = plain.get("extended")
    if names is None:
        return None
    if not isinstance(names, list) or not all(isinstance(each, str) for each in names):
        raise UsageError(f"{path.name}: extended must be a list of names")
    return frozenset(names)


def _requirements(plain: Mapping[str, Any], path: Path) -> Iterator[Requirement]:
    extended = _extended(plain, path)
    for entry in _listed(plain.get("requirement", []), path):
        base = _checked(entry, "statement", path, extended)
        yield base
        for form in _listed(entry.get("form", []), path):
            given = _checked(form, "of", path, extended)
            statement = form_statement(given.statement, base.statement)
            yield replace(given, statement=statement, form_of=base.id, form=given.statement)


def _checked(entry: Mapping[str, Any], text_key: str, path: Path, extended: frozenset[str] | None) -> Requirement:
    """Return the entry as a requirement after checking it; ``text_key``: the key of its statement."""
    name = f"{path.name}: requirement {entry.get('id', '?')!s:.100}"
    _check_keys(entry, _KEYS if text_key == "statement" else _FORM_KEYS, name)
    if missing := {"id", text_key, "source", "covers"} - set(entry):
        raise UsageError(f"{name} lacks {', '.join(sorted(missing))}")
    if wrong := [
        key for key in ("id", text_key, "source") if not isinstance(entry[key], str) or not entry[key].strip()
    ]:
        raise UsageError(f"{name}: its {wrong[0]} must be text")
    covers = entry["covers"]
    if not isinstance(covers, list) or not all(isinstance(each, str) for each in covers):
        raise UsageError(f"{name}: its covers must be a list of names")
    needs = entry.get("needs", covers if extended is not None else [])
    if not isinstance(needs, list) or not all(isinstance(each, str) and each for each in needs):
        raise UsageError(f"{name}: its needs must be a list of names")
    api = entry.get("api", EXTENDED if not (extended or frozenset()).isdisjoint(needs) else PUBLISHED)
    if api not in APIS:
        raise UsageError(f"{name}: its api must be {' or '.join(APIS)}, got {api!r:.60}")
    return Requirement(
        entry["id"], entry[text_key], entry["source"], tuple(covers), needs=tuple(dict.fromkeys(needs)), api=api
    )


def _listed(value: Any, path: Path) -> list[Mapping[str, Any]]:
    if not isinstance(value, list) or not all(isinstance(each, dict) for each in value):
        raise UsageError(f"{path.name}: write each requirement under [[requirement]], each form under it")
    return value
