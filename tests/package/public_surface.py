"""The public names of iris_under_test, read from the package itself.

A *name* is written as users see it: ``put`` and ``Iris.zeros`` of the top level, ``ccl.all_gather`` of a module. Each
object has one name, its first; its other names are aliases, so that ``device.triton.put`` is ``put``. The members of a
class that count are its methods and properties, and the data listed in ``DATA``. Classes that only hold data count as a
whole.
"""

import ast
import enum
import importlib
import inspect
import textwrap
import types
from dataclasses import dataclass, field, is_dataclass

PACKAGE = "iris_under_test"
MODULES = (
    "",
    "gluon",
    "x",
    "ccl",
    "ccl.all_gather",
    "ccl.all_to_all",
    "ccl.utils",
    "ops",
    "bench",
    "device.triton",
    "device.triton.context",
    "device.utils",
    "host.tracing",
    "host.tracing.events",
    "host.tracing.kernel_artifacts",
    "host.logging.logging",
    "host.platform.hip",
    "host.memory",
    "host.memory.allocators.vmem_allocator",
    "host.distributed.fd_passing",
    "host.distributed.helpers",
    "host.distributed.topology",
    "drivers.base",
    "drivers.fabric",
    "drivers.fabric.nvidia",
    "host.tensor_creation",
    "experimental.iris_gluon",
)
"""Modules that users import: Iris API, section 1. Further modules are internal to the package."""

DATA = {
    "Iris": None,
    "Tracing": None,
    # Listed, since versions of Triton differ in where they keep the fields of a kernel's arguments.
    "IrisDeviceCtx": {"cur_rank", "num_ranks", "heap_bases", "tracing"},
    "DeviceContext": {"rank", "world_size", "heap_bases", "tracing"},
}
"""Classes whose data users read: Iris API, sections 1, 6 and 7. None: all attributes that the constructor sets."""

_TRITONS = {"cache_key", "hash_attrs", "type"}
"""Attributes that Triton requires of the classes of kernel arguments."""


@dataclass
class Name:
    """One public name.

    ``paths`` are all its spellings relative to the package (``host.tracing.events.TraceEvent``). ``least`` is the
    number of parts of a path that belong to the object itself and cannot be left out: 2 for ``Iris.zeros``.
    """

    name: str
    least: int
    paths: set[str] = field(default_factory=set)

    def is_written(self, text):
        """Return True if ``text`` is a spelling of this name.

        ``events.TraceEvent`` and ``TraceEvent`` are both ``host.tracing.events.TraceEvent``; ``zeros`` is not
        ``Iris.zeros``.
        """
        enough = text.count(".") + 1 >= self.least
        return enough and any(path == text or path.endswith("." + text) for path in self.paths)


def names_of(modules=MODULES, package=PACKAGE):
    """Return all names, in the order of the modules."""
    names: dict[object, Name] = {}
    for module in modules:
        loaded = importlib.import_module(".".join(filter(None, [package, module])))
        for attribute in loaded.__all__:
            value = getattr(loaded, attribute)
            _add(names, _identity(value, attribute), ".".join(filter(None, [module, attribute])), 1)
            if inspect.isclass(value):
                for owner, member in _members(value, package):
                    path = ".".join(filter(None, [module, attribute, member]))
                    _add(names, (owner, member), path, 2)
    return list(names.values())


def _identity(value, name):
    """Return the key of an object. Equal constants are different names, so that their key is the name."""
    shared = callable(value) or isinstance(value, types.ModuleType)
    return id(value) if shared else name


def _add(names, key, path, least):
    names.setdefault(key, Name(path, least)).paths.add(path)


def _members(kind, package):
    """Yield (the base class that first defines it, name) of each member: an override is the same name as in the
    base."""
    if is_dataclass(kind) or issubclass(kind, (enum.Enum, BaseException)):
        return
    bases = [base for base in kind.__mro__ if base.__module__.partition(".")[0] == package.partition(".")[0]]
    data = DATA.get(kind.__name__, set())
    members = {name for base in bases for name, value in vars(base).items() if callable(value) or _is_property(value)}
    members |= {name for base in bases for name in _attributes(base)} if data is None else data
    for name in sorted(members - _TRITONS):
        if not name.startswith("_"):
            yield next((base for base in reversed(bases) if name in vars(base)), kind), name


def _is_property(value):
    return isinstance(value, (property, staticmethod, classmethod))


def _attributes(kind):
    """Return the attributes that the constructor of a class assigns to ``self``."""
    if "__init__" not in vars(kind):
        return set()
    tree = ast.parse(textwrap.dedent(inspect.getsource(kind.__init__)))
    targets = (
        target
        for node in ast.walk(tree)
        if isinstance(node, (ast.Assign, ast.AnnAssign))
        for target in (node.targets if isinstance(node, ast.Assign) else [node.target])
    )
    return {
        target.attr
        for target in targets
        if isinstance(target, ast.Attribute) and isinstance(target.value, ast.Name) and target.value.id == "self"
    }
