"""References of units: the closure of a set of units over the names in their source.

A name leads to the unit that it is bound to, through imports. In the code of kernels, which Python does not call, an
attribute of an unknown value (``ctx.put``) leads to the functions of that name in every class that the closure
contains, and in every module that it passes on as a value. A descriptor leads to its methods: a caller that
reads the attribute may keep its value, as Triton keeps a cache key, so that later requirements are not seen to call
them.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Set
from dataclasses import dataclass, field
from functools import cache

from command_line.gate.units import Definition, Module, Sources, Unit

_JITTED = ("jit", "constexpr_function")
_DESCRIPTOR = frozenset({"__get__", "__set__", "__delete__", "__set_name__"})
_DEPTH = 20
"""Re-exports that are followed."""


@dataclass
class _Names:
    """Names in a unit: ``units`` that they lead to, ``attributes`` of values that the source does not show, and
    ``modules`` as values."""

    units: set[str] = field(default_factory=set)
    attributes: set[str] = field(default_factory=set)
    modules: set[str] = field(default_factory=set)


class References:
    """References between the units of ``sources``."""

    def __init__(self, sources: Sources) -> None:
        self._sources = sources
        self._names = cache(self._read)

    def closure(self, start: Iterable[str]) -> set[str]:
        """Return the units that are reached from the names of units in ``start``, which are contained."""
        reached: set[str] = set()
        attributes: set[str] = set()
        holders: set[str] = set()
        waiting = [name for name in start if name in self._sources.units]
        while waiting:
            name = waiting.pop()
            if name in reached:
                continue
            reached.add(name)
            unit = self._sources.units[name]
            mentioned = self._names(name)
            waiting += mentioned.units
            for holder in {*mentioned.modules, *([name] if _is_class(unit) else [])} - holders:
                holders.add(holder)
                waiting += self._held(holder, attributes)
            if is_kernel_code(unit) and (new := mentioned.attributes - attributes):
                attributes |= new
                waiting += [member for one in holders for member in self._held(one, new)]
        return reached

    def _held(self, holder: str, attributes: Set[str]) -> Iterator[str]:
        """Yield the kernels' functions in a class or a module that have one of these names, those that Python calls by
        itself, and the methods of a descriptor."""
        module = self._sources.modules.get(holder)
        file = module.file if module is not None else holder.partition(":")[0]
        prefix = f"{file}:" if module is not None else f"{holder}."
        for unit in self._sources.files[file].units.values():
            member = unit.name.removeprefix(prefix)
            called = member in attributes or member.startswith("__")
            if called and unit.name.startswith(prefix) and (is_kernel_code(unit) or member in _DESCRIPTOR):
                yield unit.name

    def _read(self, name: str) -> _Names:
        unit = self._sources.units[name]
        module = self._sources.files[unit.file]
        names = _Names()
        if unit.owner:
            names.units.add(f"{unit.file}:{unit.owner}")
        for node in unit.nodes:
            bases = {id(inner.value) for inner in _walk(node) if isinstance(inner, ast.Attribute)}
            for inner in _walk(node):
                if isinstance(inner, ast.Name):
                    names.units.update(self._bound(module, inner.id))
                    if id(inner) not in bases and (passed := self._module_of(module, inner.id)) is not None:
                        names.modules.add(passed)
                elif isinstance(inner, ast.Attribute):
                    self._attribute(module, unit, inner, names)
                elif isinstance(inner, (ast.Import, ast.ImportFrom)):
                    names.units.update(self._import(module, inner))
        return names

    def _attribute(self, module: Module, unit: Unit, node: ast.Attribute, names: _Names) -> None:
        """Add what ``X.name`` means: a unit of the module or class X, or else a method of any class."""
        dotted = _dotted(node)
        if dotted is None:
            names.attributes.add(node.attr)
            return
        first, *rest = dotted
        if first in ("self", "cls") and unit.owner:
            names.units.update(self._member(module, f"{unit.owner}.{rest[0]}"))
            names.attributes.update(rest)
            return
        target = module.imports.get(first)
        if target is None:
            names.units.update(self._member(module, ".".join(dotted[:2])))
            names.attributes.update(rest)
            return
        origin, attribute = target
        place = ".".join(filter(None, [origin, attribute]))
        owner = self._sources.modules.get(place) or self._sources.modules.get(origin)
        if owner is None and not self._ours(origin):
            return  # of another package, such as tl.load
        if self._sources.modules.get(place) is not None and rest:
            for word in rest[:-1]:
                place = f"{place}.{word}" if f"{place}.{word}" in self._sources.modules else place
            named = set(self._bound(self._sources.modules[place], rest[-1] if len(rest) > 1 else rest[0]))
            names.units.update(named)
        names.attributes.update(rest)

    def _module_of(self, module: Module, name: str) -> str | None:
        """Return the module that a name is bound to by an import; None if it is bound to something else."""
        if name not in module.imports:
            return None
        origin, attribute = module.imports[name]
        dotted = ".".join(filter(None, [origin, attribute]))
        parent = self._sources.modules.get(origin) if attribute else None
        # ``from . import amd`` binds the submodule, unless the package binds something else to the name.
        other = (
            parent is not None and attribute in parent.units and parent.imports.get(attribute) != (origin, attribute)
        )
        return dotted if dotted in self._sources.modules and not other else None

    def _ours(self, origin: str) -> bool:
        return any(name.partition(".")[0] == origin.partition(".")[0] for name in self._sources.modules)

    def _bound(self, module: Module, name: str) -> set[str]:
        """Return the units that a name at the top of a module leads to: the binding itself, and through imports."""
        reached = set(self._member(module, name))
        for _ in range(_DEPTH):
            if (target := module.imports.get(name)) is None:
                return reached
            origin, attribute = target
            following = self._sources.modules.get(origin)
            if following is None or self._module_of(module, name) is not None:
                return reached
            module, name = following, attribute
            reached |= set(self._member(module, name))
        return reached

    def _member(self, module: Module, name: str) -> Iterator[str]:
        if name in module.units:
            yield module.units[name].name

    def _import(self, module: Module, node: ast.Import | ast.ImportFrom) -> Iterator[str]:
        """Yield what an import inside a function binds."""
        if isinstance(node, ast.Import):
            return
        package = module.name if module.file.endswith("__init__.py") else module.name.rpartition(".")[0]
        parts = package.split(".")
        base = parts[: len(parts) - node.level + 1] if node.level else []
        origin = self._sources.modules.get(".".join([*base, *filter(None, [node.module])]))
        for alias in node.names if origin is not None else ():
            yield from self._bound(origin, alias.name)  # type: ignore[arg-type]


@cache
def is_kernel_code(unit: Unit) -> bool:
    """Return whether a unit is a function that Triton compiles, or one that it calls while it compiles."""
    return any(
        isinstance(node, Definition) and any(_last_word(each) in _JITTED for each in node.decorator_list)
        for node in unit.nodes
    )


def _is_class(unit: Unit) -> bool:
    return any(isinstance(node, ast.ClassDef) for node in unit.nodes)


def _walk(node: ast.AST) -> Iterator[ast.AST]:
    """Yield the nodes of a unit; of a class without its methods, which are units of their own."""
    if not isinstance(node, ast.ClassDef):
        yield from ast.walk(node)
        return
    for part in (*node.bases, *node.keywords, *node.decorator_list):
        yield from ast.walk(part)
    for part in node.body:
        if not isinstance(part, Definition):
            yield from ast.walk(part)


def _dotted(node: ast.Attribute) -> list[str] | None:
    """Return ["a", "b", "c"] for ``a.b.c``; None if the first part is not a name."""
    words = [node.attr]
    value = node.value
    while isinstance(value, ast.Attribute):
        words.append(value.attr)
        value = value.value
    return [value.id, *reversed(words)] if isinstance(value, ast.Name) else None


def _last_word(node: ast.expr) -> str:
    if isinstance(node, ast.Call):
        node = node.func
    return node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")
