"""The recipes of CONTRIBUTING.md: sections, the edits in their ``diff`` blocks, and their commands.

An edit is a diff without line numbers: ``+++ path``, then hunks that begin with ``@@``. The old lines of a hunk must
stand in the file exactly once. A hunk without old lines is a new file, or goes to the end of one.
"""

import re
import shutil
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "CONTRIBUTING.md"
COPIED = (
    "command_line",
    "conformance",
    "docs/spec",
    "fixtures",
    "harness",
    "iris_under_test",
    "mutants",
    "reports",
    "tests",
)


@dataclass(frozen=True)
class Hunk:
    """Replaces ``old`` with ``new`` in the file ``path``; an empty ``old`` stands for the end of the file."""

    path: str
    old: str
    new: str


@dataclass(frozen=True)
class Recipe:
    """One section of the page."""

    title: str
    text: str

    @property
    def hunks(self) -> list[Hunk]:
        return [hunk for block in self._blocks("diff") for hunk in _hunks(block)]

    @property
    def commands(self) -> list[str]:
        return [line for block in self._blocks("sh") for line in block.splitlines()]

    def _blocks(self, language: str) -> list[str]:
        return re.findall(rf"^```{language}\n(.*?)^```$", self.text, re.MULTILINE | re.DOTALL)


def recipes() -> dict[str, Recipe]:
    """The recipes by title: the sections of the page below "Recipes"."""
    page = PAGE.read_text(encoding="utf-8").partition("\n## Recipes\n")[2].partition("\n## ")[0]
    sections = (section.partition("\n") for section in page.split("\n### ")[1:])
    return {title: Recipe(title, text) for title, _, text in sections}


def apply(hunks: list[Hunk], root: Path, *, backwards: bool = False) -> None:
    """Edit the files below ``root``; ``backwards`` takes the edits out again."""
    for hunk in hunks:
        path = root / hunk.path
        old, new = (hunk.new, hunk.old) if backwards else (hunk.old, hunk.new)
        if not old:
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("a", encoding="utf-8") as file:
                file.write(new)
            continue
        text = path.read_text(encoding="utf-8")
        count = text.count(old)
        assert count == 1, f"CONTRIBUTING.md: these lines stand in {hunk.path} {count} times, not once:\n{old}"
        path.write_text(text.replace(old, new), encoding="utf-8")


def copy(folder: Path) -> Path:
    """Copy what the recipes edit and run to ``folder``, and return it."""
    for name in COPIED:
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("conftest.py", "pyproject.toml", "constraints-ci.txt"):
        shutil.copy(ROOT / name, folder / name)
    return folder


def _hunks(block: str) -> list[Hunk]:
    hunks = []
    for section in re.split(r"^\+\+\+ ", block, flags=re.MULTILINE)[1:]:
        path, _, body = section.partition("\n")
        for lines in re.split(r"^@@\n", body, flags=re.MULTILINE)[1:]:
            kept = [line + "\n" for line in lines.removesuffix("\n").split("\n")]
            assert all(line[0] in " +-\n" for line in kept), lines
            old = "".join(line[1:] or "\n" for line in kept if line[0] in " -\n")
            new = "".join(line[1:] or "\n" for line in kept if line[0] in " +\n")
            hunks.append(Hunk(path.strip(), old, new))
    assert hunks, f"a diff without a hunk: {block}"
    return hunks
