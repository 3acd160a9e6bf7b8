"""A Python file as a text and a syntax tree, with the position of each node in the text."""

from __future__ import annotations

import ast
import bisect
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import accumulate

from mutants.mutant import Mutant, position


@dataclass(frozen=True)
class Edit:
    """The change of [start, end) of a text to ``new``, made by an operator."""

    operator: str
    start: int
    end: int
    new: str


class Source:
    """Text and syntax tree of one file. ``nodes`` yields each node with the names of the functions around it.

    The call of a function in ``CALLS`` counts as a function around itself.
    """

    CALLS = frozenset({"check"})
    """Functions that only the debug build calls: other tests detect a change there than in the function around."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.tree = ast.parse(text)
        self._lines = text.splitlines(keepends=True)
        self._starts = [0, *accumulate(map(len, self._lines))]
        self._ends = [self.span(statement)[1] for statement in self.tree.body]

    def parses_with(self, edit: Edit) -> bool:
        """Return whether the text still parses with an edit. Only the outermost statement around it is parsed."""
        number = bisect.bisect_left(self._ends, edit.end)
        start = self._ends[number - 1] if number else 0
        try:
            ast.parse(self.text[start : edit.start] + edit.new + self.text[edit.end : self._ends[number]])
        except SyntaxError:
            return False
        return True

    def span(self, node: ast.expr | ast.stmt | ast.keyword) -> tuple[int, int]:
        """Return the start and the end of a node, in characters."""
        assert node.end_lineno is not None  # sanity check: nodes of a parsed text have an end
        assert node.end_col_offset is not None
        return self._at(node.lineno, node.col_offset), self._at(node.end_lineno, node.end_col_offset)

    def of(self, node: ast.expr | ast.stmt | ast.keyword) -> str:
        """Return the text of a node."""
        start, end = self.span(node)
        return self.text[start:end]

    def around(self, start: int) -> str:
        """Return the names of the classes and functions around a position, joined by dots; "" at module level."""
        innermost: tuple[str, ...] = ()
        for node, names in self.nodes():
            if isinstance(node, (ast.expr, ast.stmt)) and start in range(*self.span(node)):
                innermost = (*names, node.name) if isinstance(node, (ast.FunctionDef, ast.ClassDef)) else names
        return ".".join(innermost)

    def nodes(self) -> Iterator[tuple[ast.AST, tuple[str, ...]]]:
        """Yield each node, in the order of the text, with the names of the classes and functions around it."""
        yield from self._below(self.tree, ())

    def _below(self, node: ast.AST, names: tuple[str, ...]) -> Iterator[tuple[ast.AST, tuple[str, ...]]]:
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in self.CALLS:
            names = (*names, node.func.id)
        yield node, names
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            names = (*names, node.name)
        for child in ast.iter_child_nodes(node):
            yield from self._below(child, names)

    def _at(self, line: int, offset: int) -> int:
        """Return the position of a place that ``ast`` gives as line and UTF-8 bytes."""
        before = self._lines[line - 1].encode()[:offset].decode()
        return self._starts[line - 1] + len(before)


def mutants_of(kind: str, file: str, source: Source, edits: Iterable[tuple[Edit, str]]) -> Iterator[Mutant]:
    """Yield the mutants that (edit, function) pairs make of a file.

    An edit is left out if the text would not change, no longer parse, or be the same as after an earlier edit.
    """
    known: set[str] = set()
    for edit, function in edits:
        old = source.text[edit.start : edit.end]
        changed = source.text[: edit.start] + edit.new + source.text[edit.end :]
        if changed == source.text or changed in known or not source.parses_with(edit):
            continue
        known.add(changed)
        line, column = position(source.text, edit.start)
        identity = f"{edit.operator}:{file}:{line}:{column}"
        yield Mutant(identity, kind, edit.operator, file, line, column, edit.start, old, edit.new, function)
