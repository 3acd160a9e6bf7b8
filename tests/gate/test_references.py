"""The closure over names contains what a recording cannot see again: the methods of a descriptor."""

from command_line.gate.references import References
from command_line.gate.units import Sources, digests_of

FILE = "lib/context.py"
TEXT = """from lib.hashing import SourceHash


class Context:
    kind = "plain"

    def put(self):
        return 1


Context.key = SourceHash()
ready = print()
"""
HASHING = """class SourceHash:
    def __get__(self, instance, owner):
        return digest(owner)

    def unused(self):
        return 2


def digest(owner):
    return 3
"""


def closure(tmp_path, text, start):
    """Return the closure from ``start`` in a library of these modules."""
    folder = tmp_path / "lib"
    folder.mkdir()
    for name, content in {"__init__.py": "", "context.py": text, "hashing.py": HASHING}.items():
        (folder / name).write_text(content, encoding="utf-8")
    return References(Sources(folder)).closure([start])


def test_a_class_leads_to_the_descriptor_that_it_is_given_later(tmp_path):
    reached = closure(tmp_path, TEXT, f"{FILE}:Context")
    assert {"lib/hashing.py:SourceHash.__get__", "lib/hashing.py:digest"} <= reached
    assert not reached & {"lib/hashing.py:SourceHash.unused", f"{FILE}:Context.put", f"{FILE}:ready"}


def test_a_class_without_one_does_not(tmp_path):
    text = TEXT.replace("Context.key = SourceHash()", "other = SourceHash()")
    assert "lib/hashing.py:SourceHash" not in closure(tmp_path, text, f"{FILE}:Context")


def test_what_is_assigned_to_a_class_is_a_part_of_it():
    before, after = digests_of(FILE, TEXT), digests_of(FILE, TEXT.replace("Context.key =", "Context.hash ="))
    assert [name for name in before if before[name] != after[name]] == [f"{FILE}:Context"]
