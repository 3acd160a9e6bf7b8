"""Reads the metadata of a compiled kernel from its code object, an ELF file with a MessagePack note."""

from __future__ import annotations

# First byte of a MessagePack integer -> number of bytes that follow.
_WIDTHS = {0xCC: 1, 0xCD: 2, 0xCE: 4, 0xCF: 8}


def metadata_integer(code: bytes, key: str) -> int:
    """Return the integer under ``key``, such as ``.vgpr_count``, or 0 if the code object does not state it."""
    name = key.encode()
    # A short string is its length, marked by 0xA0, and its bytes.
    start = code.find(bytes([0xA0 | len(name)]) + name)
    if len(name) >= 32 or start < 0:
        return 0
    place = start + 1 + len(name)
    first = code[place]
    if first < 0x80:
        return first
    return int.from_bytes(code[place + 1 : place + 1 + _WIDTHS.get(first, 0)], "big")
