"""The units of a package's source: what can change by itself, with a digest that comments and lines do not affect.

A unit is a function, a method, a class without its methods but with what is assigned to its attributes later, or what
else binds a name at the top of a module: a constant, an import. Its name is ``FILE:NAME``, with FILE relative to the
parent of the package:

    iris_under_test/host/iris.py:Iris.barrier
    iris_under_test/device/signals.py:MAX_MEMBERS

What binds no name is ``FILE:<module>``. A nested function is a part of the function around it.
"""

from __future__ import annotations

import ast
import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from harness.errors import UsageError

REST = "<module>"

Definition = ast.FunctionDef | ast.AsyncFunctionDef
_NOT_CODE = frozenset({".pyc", ".md", ".typed"})


@dataclass(frozen=True)
class Unit:
    """A unit: its ``nodes``, more than one if a name is bound several times, and the lines from ``first`` to ``last``.

    ``owner`` is the class of a method, else "".
    """

    name: str
    file: str
    nodes: tuple[ast.AST, ...]
    first: int
    last: int
    owner: str = ""

    @cached_property
    def digest(self) -> str:
        """Sixteen hex digits; equal for the same code, whatever its lines, comments and docstrings."""
        text = "\n".join(_written(_bare(node)) for node in self.nodes)
        return hashlib.sha256(text.encode()).hexdigest()[:16]


@dataclass
class Module:
    """A module: its dotted ``name``, its ``file``, its units by the name without the file, and what each import binds.

    ``imports`` maps a bound name to (module, attribute), the attribute "" if a module is bound.
    """

    name: str
    file: str
    units: dict[str, Unit] = field(default_factory=dict)
    imports: dict[str, tuple[str, str]] = field(default_factory=dict)


class Sources:
    """The modules of packages, each given by its folder. ``others``: digests of files that are not Python source."""

    def __init__(self, *folders: Path) -> None:
        self.modules: dict[str, Module] = {}
        self.others: dict[str, str] = {}
        for folder in folders:
            self._read(folder)
        self.files = {module.file: module for module in self.modules.values()}
        self.units = {unit.name: unit for module in self.modules.values() for unit in module.units.values()}

    def digests(self) -> dict[str, str]:
        """Return the digest of each unit, and of each other file, by name."""
        return {**{name: unit.digest for name, unit in self.units.items()}, **self.others}

    def at(self, file: str, line: int) -> Unit | None:
        """Return the innermost unit that contains a line of a file."""
        module = self.files.get(file)
        around = [unit for unit in module.units.values() if unit.first <= line <= unit.last] if module else []
        return min(around, key=lambda unit: unit.last - unit.first, default=None)

    def _read(self, folder: Path) -> None:
        for path in sorted(folder.rglob("*")):
            file = path.relative_to(folder.parent).as_posix()
            if not path.is_file() or "__pycache__" in path.parts:
                continue
            if path.suffix == ".py":
                parts = list(Path(file).with_suffix("").parts)
                package = parts[:-1]
                name = ".".join(package if parts[-1] == "__init__" else parts)
                self.modules[name] = _module(name, ".".join(package), file, parsed(path))
            elif path.suffix not in _NOT_CODE:
                self.others[file] = hashlib.sha256(path.read_bytes()).hexdigest()[:16]


def digests_of(file: str, text: str) -> dict[str, str]:
    """Return the digests of the units of one file, relative to the parent of its package. SyntaxError if it is none."""
    package = file.rpartition("/")[0].replace("/", ".")
    module = _module("", package, file, ast.parse(text))
    return {unit.name: unit.digest for unit in module.units.values()}


def parsed(path: Path) -> ast.Module:
    """Return the tree of a Python file. UsageError, with the place, if it is not valid."""
    try:
        return ast.parse(path.read_bytes(), str(path))
    except (SyntaxError, ValueError) as error:
        line = getattr(error, "lineno", None)
        place = f"{path}:{line}" if line else str(path)
        raise UsageError(f"{place} is not Python source: {getattr(error, 'msg', None) or error}") from None


def _written(node: ast.AST) -> str:
    """Return a text that is equal for equal trees, in every release of Python. ``ast.dump`` differs: releases add
    fields, which are empty for code that an older release can read."""
    fields = []
    for name, value in ast.iter_fields(node):
        values = value if isinstance(value, list) else [] if value is None else [value]
        texts = [_written(one) if isinstance(one, ast.AST) else repr(one) for one in values]
        if texts:
            fields.append(f"{name}=[{','.join(texts)}]")
    return f"{type(node).__name__}({','.join(fields)})"


def changed(before: Mapping[str, str], after: Mapping[str, str]) -> dict[str, str]:
    """Return the units that differ between two tables of digests, each with "changed", "removed" or "new"."""
    words = {name: "changed" if name in after else "removed" for name in before if after.get(name) != before[name]}
    return {**words, **{name: "new" for name in after if name not in before}}


def _module(name: str, package: str, file: str, tree: ast.Module) -> Module:
    module = Module(name, file)
    bound: dict[str, list[tuple[ast.AST, str]]] = {}
    for node in tree.body:
        for unit, part, owner in _parts(node):
            bound.setdefault(unit, []).append((part, owner))
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            module.imports.update(_imported(node, package))
    for unit, parts in bound.items():
        nodes = tuple(part for part, _ in parts)
        first = min(_first(node) for node in nodes)
        last = max(getattr(node, "end_lineno", 0) or 0 for node in nodes)
        module.units[unit] = Unit(f"{file}:{unit}", file, nodes, first, last, parts[0][1])
    return module


def _parts(node: ast.stmt) -> Iterator[tuple[str, ast.AST, str]]:
    """Yield the units that a statement at the top of a module belongs to, with its part, and the class of a method."""
    if isinstance(node, Definition):
        yield node.name, node, ""
    elif isinstance(node, ast.ClassDef):
        yield node.name, node, ""
        for inner in node.body:
            if isinstance(inner, Definition):
                yield f"{node.name}.{inner.name}", inner, node.name
    elif isinstance(node, (ast.Import, ast.ImportFrom)):
        for alias in node.names:
            level, origin = (node.level, node.module) if isinstance(node, ast.ImportFrom) else (0, None)
            one = ast.ImportFrom(origin, [alias], level) if isinstance(node, ast.ImportFrom) else ast.Import([alias])
            yield alias.asname or alias.name.partition(".")[0], ast.copy_location(one, node), ""
    elif names := _targets(node) or _holders(node):
        for name in names:
            yield name, node, ""
    elif not _is_text(node):
        yield REST, node, ""


def _targets(node: ast.stmt) -> list[str]:
    """Return the names that a plain assignment binds; empty for any other statement."""
    targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
    if not isinstance(node, (ast.Assign, ast.AnnAssign, ast.AugAssign)):
        return []
    names = [each.id for target in targets if target for each in ast.walk(target) if isinstance(each, ast.Name)]
    plain = all(isinstance(target, (ast.Name, ast.Tuple, ast.List)) for target in targets)
    return names if plain else []


def _holders(node: ast.stmt) -> list[str]:
    """Return X for an assignment ``X.name = ...``, which is a part of the class X; empty for any other statement."""
    targets = node.targets if isinstance(node, ast.Assign) else []
    plain = [each for each in targets if isinstance(each, ast.Attribute) and isinstance(each.value, ast.Name)]
    return [each.value.id for each in plain if isinstance(each.value, ast.Name)] if len(plain) == len(targets) else []


def _imported(node: ast.Import | ast.ImportFrom, package: str) -> Iterator[tuple[str, tuple[str, str]]]:
    if isinstance(node, ast.Import):
        for alias in node.names:
            yield alias.asname or alias.name.partition(".")[0], (alias.name, "")
        return
    base = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
    origin = ".".join([*base, *filter(None, [node.module])])
    for alias in node.names:
        yield alias.asname or alias.name, (origin, alias.name)


def _first(node: ast.AST) -> int:
    decorators = getattr(node, "decorator_list", [])
    return int(min([getattr(node, "lineno", 0), *(each.lineno for each in decorators)]))


def _is_text(node: ast.AST) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)


class _Bare(ast.NodeTransformer):
    """Removes docstrings, and from a class the bodies of its methods, of which the names stay."""

    def __init__(self, top: ast.AST) -> None:
        self._top = top

    def visit(self, node: ast.AST) -> ast.AST:
        fresh = super().generic_visit(node)
        body = getattr(fresh, "body", None)
        if isinstance(body, list):
            body[:] = [each for each in body if not _is_text(each)] or [ast.Pass()]
            if node is self._top and isinstance(node, ast.ClassDef):
                names = [each.name for each in body if isinstance(each, Definition)]
                kept = [each for each in body if not isinstance(each, Definition)]
                body[:] = [*kept, *(ast.Expr(ast.Constant(name)) for name in names)]
        return fresh


def _bare(node: ast.AST) -> ast.AST:
    copy = _copied(node)
    return _Bare(copy).visit(copy)


def _copied(node: ast.AST) -> ast.AST:
    """Return a copy whose lists of children can be changed."""
    fields: dict[str, Any] = {}
    for name, value in ast.iter_fields(node):
        if isinstance(value, list):
            fields[name] = [_copied(each) if isinstance(each, ast.AST) else each for each in value]
        else:
            fields[name] = _copied(value) if isinstance(value, ast.AST) else value
    return type(node)(**fields)
