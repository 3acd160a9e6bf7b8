"""The imports among the files of this project: by statements anywhere in a file, also deferred or for types only, and
by text.

Text that names a module counts as an import of it:

    importlib.import_module("fixtures.rig")      a string that is the name of a module, also with ":function"
    f"conformance.rma.test_{op}"                 such a name with parts that are filled in: each module that matches
    ["-m", "pytest", "-p", "fixtures.plugin"]    the argument after -m or -p
    "python -m command_line replay"              the same within a longer text
    "import json; from fixtures import rig"      code for another interpreter
    "command_line"                               the bare name of a package in ``DISTINCT``

Comments, docstrings, and strings that are statements by themselves are prose.
"""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

PACKAGES = (
    "command_line", "mutants", "conformance", "fixtures", "reports", "certificates", "history", "harness",
    "iris_under_test", "tests", "benchmarks", "examples",
)  # fmt: skip
DISTINCT = ("command_line", "conformance", "fixtures", "harness", "iris_under_test")
"""Packages whose name is not an ordinary word: a string with only this name means the package."""

_PACKAGE = "|".join(PACKAGES)
_NAME = re.compile(rf"(?!.*\.(?:py|json|toml|md)$)(?P<module>(?:{_PACKAGE})(?:\.[\w*]+)+)(?::[\w.*]+)?")
_ARGUMENT = re.compile(rf"(?:^|\s)-[mp]\s+(?P<module>(?:{_PACKAGE})(?:\.\w+)*)(?![\w/])")
_CODE = re.compile(
    rf"\bfrom\s+(?P<package>(?:{_PACKAGE})(?:\.\w+)*)\s+import\s+(?P<name>\w+)"
    rf"|(?<!\w )\bimport\s+(?P<module>(?:{_PACKAGE})(?:\.\w+)*)(?![\w/])"
)
_BY_NAME = {"import_module", "find_spec", "__import__", "resolve_name", "run_module"}


@dataclass(frozen=True, order=True)
class Import:
    """One import. ``name`` is written with the imported object: ``harness.evidence.read``."""

    line: int
    name: str
    text: bool = False
    """True if the import is by text."""


def modules(root: Path, packages: Iterable[str] = PACKAGES) -> dict[str, Path]:
    """Return the files below ``root`` by the name under which they are imported."""
    files = {}
    for package in packages:
        for path in sorted((root / package).rglob("*.py")):
            parts = path.relative_to(root).with_suffix("").parts
            files[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return files


@functools.cache
def imports(path: Path, root: Path) -> tuple[Import, ...]:
    """Return what a file imports, by statement or by text; relative imports are resolved."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return tuple(sorted({*_statements(tree, path.relative_to(root).parent.parts), *_texts(tree)}))


def graph(root: Path, packages: Iterable[str] = PACKAGES) -> dict[str, set[str]]:
    """Return the modules that each module imports."""
    known = modules(root, packages)
    edges = {
        module: {target for each in imports(path, root) for target in targets(each.name, known)}
        for module, path in known.items()
    }
    return {module: imported - {module} for module, imported in edges.items()}


def targets(name: str, known: Collection[str]) -> set[str]:
    """Return the module of ``known`` that is the longest prefix of ``name``; if ``name`` has ``*``, all that match."""
    if "*" in name:
        pattern = re.compile(re.escape(name).replace(r"\*", r"[\w.]+"))
        return {module for module in known if pattern.fullmatch(module)}
    while name and name not in known:
        name = name.rpartition(".")[0]
    return {name} - {""}


def circles(edges: Mapping[str, set[str]]) -> list[list[str]]:
    """Return the groups of modules that import each other, directly or indirectly (Tarjan's algorithm)."""
    number: dict[str, int] = {}
    lowest: dict[str, int] = {}
    stack: list[str] = []
    groups: list[list[str]] = []
    for start in sorted(edges):
        work = [(start, iter(()))] if start not in number else []
        while work:
            module, targets = work[-1]
            if module not in number:
                number[module] = lowest[module] = len(number)
                stack.append(module)
                targets = iter(sorted(edges[module]))
                work[-1] = module, targets
            for target in targets:
                if target not in number:
                    work.append((target, iter(())))
                    break
                if target in stack:
                    lowest[module] = min(lowest[module], number[target])
            else:
                work.pop()
                if work:
                    lowest[work[-1][0]] = min(lowest[work[-1][0]], lowest[module])
                if lowest[module] == number[module]:
                    place = stack.index(module)
                    if len(stack) - place > 1:
                        groups.append(sorted(stack[place:]))
                    del stack[place:]
    return groups


def _statements(tree: ast.Module, package: tuple[str, ...]) -> Iterator[Import]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (Import(node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = ".".join(package[: len(package) - node.level + 1]) if node.level else ""
            module = ".".join(filter(None, [base, node.module]))
            yield from (Import(node.lineno, f"{module}.{alias.name}") for alias in node.names)


def _texts(tree: ast.Module) -> Iterator[Import]:
    nodes = list(ast.walk(tree))
    skipped = {node.value for node in nodes if isinstance(node, ast.Expr)}  # prose
    skipped |= {part for node in nodes if isinstance(node, ast.JoinedStr) for part in node.values}
    for node in nodes:
        if (text := _text(node)) is not None and node not in skipped:
            yield from (Import(node.lineno, name, text=True) for name in _named(text))
        elif isinstance(node, ast.Call):
            yield from _bare(node.args[:1] if _callee(node) in _BY_NAME else _after_options(node.args))
        elif isinstance(node, (ast.List, ast.Tuple)):
            yield from _bare(_after_options(node.elts))


def _after_options(words: list[ast.expr]) -> list[ast.expr]:
    return [word for option, word in pairwise(words) if _text(option) in ("-m", "-p")]


def _named(text: str) -> Iterator[str]:
    """Yield the modules that a text names."""
    if not any(package in text for package in PACKAGES):
        return
    if match := _NAME.fullmatch(text):
        yield match["module"]
    if text in DISTINCT:
        yield text
    yield from (match["module"] for match in _ARGUMENT.finditer(text))
    for match in _CODE.finditer(text):
        yield match["module"] or f"{match['package']}.{match['name']}"


def _bare(words: Iterable[ast.expr]) -> Iterator[Import]:
    for word in words:
        text = _text(word)
        if text in PACKAGES:
            yield Import(word.lineno, text, text=True)


def _text(node: ast.AST) -> str | None:
    """Return the text of a string, with ``*`` for each part that is filled in, or None if it is not a string."""
    if isinstance(node, ast.JoinedStr):
        return "".join(_text(part) or "*" for part in node.values)
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else None


def _callee(call: ast.Call) -> str:
    return call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
