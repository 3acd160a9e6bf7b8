"""Check of a line against ``schema.json``."""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jsonschema


@functools.cache
def schema() -> dict[str, Any]:
    """Return the JSON schema of one line."""
    loaded: dict[str, Any] = json.loads(Path(__file__).with_name("schema.json").read_text("utf-8"))
    return loaded


def problem_with(line: Any) -> str | None:
    """Return None if ``line`` is a valid record, else one sentence that names the field and what is wrong with it."""
    kind = line.get("record") if isinstance(line, Mapping) else None
    known = isinstance(kind, str) and kind in schema()["properties"]["record"]["enum"]
    error = jsonschema.exceptions.best_match(_validator(kind if known else None).iter_errors(line))
    if error is None:
        return None
    place = ".".join(str(part) for part in error.absolute_path) or "the record"
    return f"{place}: {error.message}"


@functools.cache
def _validator(kind: str | None) -> jsonschema.Draft202012Validator:
    """Return the validator of one kind of record: it checks only the branch that applies, in under a millisecond."""
    whole = _inlined(schema(), schema()["$defs"])
    if kind is None:
        return jsonschema.Draft202012Validator(whole)
    return jsonschema.Draft202012Validator({**whole, "allOf": [whole["$defs"][kind]]})


def _inlined(node: Any, definitions: Mapping[str, Any]) -> Any:
    """Return the schema with references replaced by their definitions, since following one takes longer than a check.

    No definition refers to itself.
    """
    if isinstance(node, dict):
        if isinstance(name := node.get("$ref"), str):
            return _inlined(definitions[name.removeprefix("#/$defs/")], definitions)
        return {key: _inlined(entry, definitions) for key, entry in node.items()}
    return [_inlined(entry, definitions) for entry in node] if isinstance(node, list) else node
