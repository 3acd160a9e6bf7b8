"""Listings of kernels on a page, with the lines marked that access other ranks' memory."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from markupsafe import Markup, escape

from reports.text import cut, plain

_CHARACTERS = 400_000
_POSITION = re.compile(r"\s*\.loc\s+\d+\s+(\d+)\s+(\d+)")
_SOURCE = re.compile(r":(\d+):(\d+)(?:\s|$)")
_FOLDERS = re.compile(r"(?<![\w.])/(?:[^/\s\"']+/)+")
"""Folders of a source file: they are those of the machine that compiled the kernel, and may hold the name of a user."""


def marked(listing: str, accesses: Sequence[Mapping[str, Any]]) -> Markup:
    """Return a listing in which the instructions of ``accesses``, a fingerprint's remote ones, are marked.

    An instruction is one of them if it has the mnemonic and the words for order and scope of the access, and the
    innermost line of its source. Folders of source files are left out.
    """
    known = {(each["mnemonic"], tuple(each["bits"]), _position(each["source"])) for each in accesses}
    names = {mnemonic for mnemonic, _, _ in known}
    position, lines = None, []
    for line in _FOLDERS.sub("", plain(cut(listing, _CHARACTERS), lines=True)).split("\n"):
        if match := _POSITION.match(line):
            position = match.groups()
        code = line.partition(";")[0].partition("//")[0].replace(",", " ").split()
        name = next((word for word in code if word.rstrip(":") in names), None)
        remote = name is not None and any(
            mnemonic == name and where in (None, position) and set(bits) <= set(code) | set(name.split("."))
            for mnemonic, bits, where in known
        )
        lines.append(Markup("<mark>%s</mark>") % line if remote else escape(line))
    return Markup("\n").join(lines)


def _position(source: str) -> tuple[str, ...] | None:
    match = _SOURCE.search(source)
    return match.groups() if match else None
