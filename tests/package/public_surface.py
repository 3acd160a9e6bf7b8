"""What a user of iris_under_test can name, read from the package itself.

A *name* is written as users see it: ``put`` and ``Iris.zeros`` of the top level, ``ccl.all_gather`` of a module. One
object has one name, the first that is found; its other names are aliases, so ``device.triton.put`` is ``put``. Of a
class count its methods and properties, and the data that users read where ``DATA`` says so; classes that only hold data
count as a whole.
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
"""Those that users import: Iris API, section 1. Further modules are the package's own affair."""

DATA = {
    "Iris": None,
    "Tracing": None,
    # Triton keeps the fields of what kernels are given where its versions differ.
    "IrisDeviceCtx": {"cur_rank", "num_ranks", "heap_bases", "tracing"},
    "DeviceContext": {"rank", "world_size", "heap_bases", "tracing"},
}
"""Classes whose data users read: Iris API, sections 1, 6 and 7. None: what the constructor sets."""

_TRITONS = {"cache_key", "hash_attrs", "type"}
"""What Triton asks of the classes that kernels are given."""


@dataclass
class Name:
    """``paths``: every way to write it, each from below the package (``host.tracing.events.TraceEvent``); ``least``:
    how many parts of a path belong to the object itself (2 for ``Iris.zeros``) and cannot be left out."""

    name: str
    least: int
    paths: set[str] = field(default_factory=set)

    def is_written(self, text):
        """``events.TraceEvent`` and ``TraceEvent`` are both ``host.tracing.events.TraceEvent``; ``zeros`` is not
        ``Iris.zeros``."""
        enough = text.count(".") + 1 >= self.least
        return enough and any(path == text or path.endswith("." + text) for path in self.paths)


def names_of(modules=MODULES, package=PACKAGE):
    """All names, in order of the modules."""
    found: dict[object, Name] = {}
    for module in modules:
        loaded = importlib.import_module(".".join(filter(None, [package, module])))
        for attribute in loaded.__all__:
            value = getattr(loaded, attribute)
            _add(found, _identity(value, attribute), ".".join(filter(None, [module, attribute])), 1)
            if inspect.isclass(value):
                for owner, member in _members(value, package):
                    path = ".".join(filter(None, [module, attribute, member]))
                    _add(found, (owner, member), path, 2)
    return list(found.values())


def _identity(value, name):
    """Equal constants are not one object: each has a name of its own."""
    shared = callable(value) or isinstance(value, types.ModuleType)
    return id(value) if shared else name


def _add(found, key, path, least):
    found.setdefault(key, Name(path, least)).paths.add(path)


def _members(kind, package):
    """(where it was first promised, name): what a class makes of its base's method is that method."""
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
    """The ``self.NAME = ...`` in a constructor."""
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
