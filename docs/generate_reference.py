"""Writes docs/reference from the docstrings of iris_under_test, which are the one place where its API is described.

    python docs/generate_reference.py            # writes the pages
    python docs/generate_reference.py --check    # exit status 1, and which, if a page is not what it would write

Reads source text and imports nothing of the library. A page is a title and modules; of each module it has the docstring
and what ``__all__`` names, in the order of the source.
"""

from __future__ import annotations

import argparse
import ast
import re
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "iris_under_test"
FOLDER = ROOT / "docs/reference"
NOTE = "<!-- Written by docs/generate_reference.py from the docstrings. -->\n"


@dataclass(frozen=True)
class Page:
    """``modules`` are dotted names under ``iris_under_test``."""

    path: str
    title: str
    about: str
    modules: tuple[str, ...]


PAGES = [
    Page("host/class.md", "The Iris class", "`iris(heap_size)` and what an instance does", ("host.iris",)),
    Page(
        "host/tensor-creation.md",
        "Tensor creation",
        "`ctx.zeros(...)` and the other factories: tensors on the symmetric heap",
        ("host.tensor_creation",),
    ),
    Page(
        "host/memory.md",
        "Memory",
        "the symmetric heap, its allocators, raw pointers",
        (
            "host.memory.symmetric_heap",
            "host.memory.errors",
            "host.memory.allocators.base_allocator",
            "host.memory.allocators.torch_allocator",
            "host.memory.allocators.vmem_allocator",
            "host.platform.raw_pointer",
        ),
    ),
    Page(
        "host/ccl.md",
        "Collectives",
        "`ctx.ccl` and `iris_under_test.ccl`",
        (
            "ccl",
            "ccl.all_gather",
            "ccl.all_to_all",
            "ccl.all_reduce",
            "ccl.workspace",
            "ccl.reduce_scatter",
            "ccl.rooted",
            "ccl.send_recv",
            "ccl.work",
            "ccl.config",
            "ccl.tuning",
            "ccl.reduce_op",
            "ccl.utils",
        ),
    ),
    Page(
        "host/ops.md",
        "Fused products",
        "`ctx.ops` and `iris_under_test.ops`",
        (
            "ops",
            "ops.matmul_all_reduce",
            "ops.matmul_reduce_scatter",
            "ops.matmul_all_gather",
            "ops.all_gather_matmul",
            "ops.config",
            "ops.workspace",
            "ops.operands",
        ),
    ),
    Page(
        "host/distributed.md",
        "Distributed helpers",
        "what the host side does between ranks",
        ("host.distributed.helpers", "host.distributed.fd_passing", "host.distributed.topology"),
    ),
    Page(
        "host/drivers.md",
        "Fabric drivers",
        "memory that ranks of a rack share by handles",
        ("drivers.base", "drivers.fabric", "drivers.fabric.nvidia"),
    ),
    Page(
        "host/tracing.md",
        "Tracing and kernel artifacts, host side",
        "`ctx.tracing`, the event kinds, `iris_launch`",
        ("host.tracing.tracing", "host.tracing.events", "host.tracing.kernel_artifacts"),
    ),
    Page(
        "host/platform.md",
        "Platform and logging",
        "`iris_under_test.hip`, device ids, the logger",
        ("host.platform.hip", "host.platform.utils", "host.logging.logging"),
    ),
    Page(
        "host/bench.md",
        "Measuring",
        "`do_bench` and registered benchmarks",
        ("bench.timing", "bench.registry", "bench.axes", "bench.state", "bench.results", "bench.command"),
    ),
    Page(
        "gluon/device-functions.md",
        "Device functions, Gluon",
        "`IrisDeviceCtx` and its tracing",
        ("device.gluon.context", "device.gluon.tracing"),
    ),
    Page(
        "triton/device-functions.md",
        "Device functions, Triton",
        "`DeviceContext`, its tracing, and the functional form",
        ("device.triton.context", "device.triton.ops", "device.triton.tracing"),
    ),
    Page(
        "triton/tile-collectives.md",
        "Tile-level collectives",
        "`iris_under_test.x`: tiles, views, and what a kernel does with them on all ranks",
        ("device.triton.tiles", "device.triton.tile_collectives", "x"),
    ),
    Page(
        "device-utils.md",
        "Device utilities",
        "clock, compute unit and die, in Triton and Gluon kernels",
        ("device.utils",),
    ),
]
# Written by hand.
OVERVIEWS = {
    "gluon/overview.md": "Gluon kernels: how they reach other ranks",
    "triton/overview.md": "Triton kernels: the context and the functional form",
}


def pages() -> Iterator[tuple[str, str]]:
    """(path under docs/reference, text) of each page."""
    yield "api-reference.md", _index()
    for page in PAGES:
        parts = [NOTE + f"# {page.title}\n", *(part for module in page.modules for part in _module(module))]
        yield page.path, "\n".join(parts)


def stale() -> list[str]:
    """Paths of pages that are missing or differ from what would be written, and of those that nothing writes."""
    wanted = dict(pages())
    found = {str(path.relative_to(FOLDER)): path.read_text(encoding="utf-8") for path in FOLDER.rglob("*.md")}
    different = {path for path, text in wanted.items() if found.get(path) != text}
    return sorted(different | (set(found) - set(wanted) - set(OVERVIEWS)))


def _index() -> str:
    lines = [
        NOTE + "# API reference\n",
        "One host side serves both languages; a kernel's language chooses the device side.\n",
        "| page | what is there |",
        "| --- | --- |",
    ]
    lines += [f"| [{Path(path).parent}: overview]({path}) | {about} |" for path, about in OVERVIEWS.items()]
    lines += [f"| [{page.title}]({page.path}) | {page.about} |" for page in PAGES]
    lines += [
        "\nWhere an old name went: [names.md](../names.md). Triton, Gluon and torch.distributed side by side:",
        "[api-comparison.md](../api-comparison.md).\n",
    ]
    return "\n".join(lines)


def _module(name: str) -> Iterator[str]:
    path = PACKAGE / Path(*name.split("."))
    source = (path / "__init__.py" if path.is_dir() else path.with_suffix(".py")).read_text(encoding="utf-8")
    tree = ast.parse(source)
    public = _public(tree)
    yield f"## `iris_under_test.{name}`\n"
    yield markdown(_docstring(tree, name))
    for node in tree.body:
        if isinstance(node, ast.FunctionDef) and node.name in public:
            yield from _function(node, name, "###")
        elif isinstance(node, ast.ClassDef) and node.name in public:
            yield f"### `{node.name}`\n"
            yield markdown(_docstring(node, name))
            for member in node.body:
                if isinstance(member, ast.FunctionDef) and _shown(member, node):
                    yield from _function(member, f"{name}.{node.name}", "####")


def _shown(member: ast.FunctionDef, owner: ast.ClassDef) -> bool:
    if member.name.startswith("_"):
        return member.name == "__init__" and ast.get_docstring(member) is not None
    # What a class only fills in is described at its base.
    return ast.get_docstring(member) is not None or not owner.bases


def _function(node: ast.FunctionDef, where: str, level: str) -> Iterator[str]:
    decorators = {ast.unparse(decorator) for decorator in node.decorator_list}
    yield f"{level} `{node.name}`\n"
    if "property" not in decorators:
        yield f"```python\n{_signature(node, where)}\n```\n"
    yield markdown(_docstring(node, where))


def _signature(node: ast.FunctionDef, where: str) -> str:
    arguments = node.args
    if where == "host.tensor_creation" and arguments.args[0].arg == "heap":
        # As methods of Iris: they bring the heap and the device, and requested_device is called device there.
        arguments.args = arguments.args[2:]
        for argument in [*arguments.args, *arguments.kwonlyargs]:
            argument.arg = "device" if argument.arg == "requested_device" else argument.arg
    elif arguments.args and arguments.args[0].arg in ("self", "cls"):
        arguments.args = arguments.args[1:]
    result = f" -> {ast.unparse(node.returns)}" if node.returns is not None and node.name != "__init__" else ""
    line = f"{node.name}({ast.unparse(arguments)}){result}"
    # As `ruff format` leaves it, which formats the pages too.
    width = 120 if len(line) <= 120 else 110
    return "\n    ".join(textwrap.wrap(line, width, break_long_words=False, break_on_hyphens=False))


def _public(tree: ast.Module) -> set[str]:
    for node in tree.body:
        if isinstance(node, ast.Assign) and [ast.unparse(target) for target in node.targets] == ["__all__"]:
            return set(ast.literal_eval(node.value))
    raise ValueError(f"a module without __all__: {ast.get_docstring(tree)}")


def _docstring(node: ast.Module | ast.ClassDef | ast.FunctionDef, where: str) -> str:
    text = ast.get_docstring(node)
    if text is None:
        raise ValueError(f"{where}: {getattr(node, 'name', 'the module')} has no docstring")
    return text


def markdown(docstring: str) -> str:
    """A docstring as Markdown: literals in single backticks, what is indented right below a line as a list.

    Example: "Raises:\\n    ValueError: ``n`` is 0" becomes "Raises:\\n\\n- ValueError: `n` is 0".
    """
    lines: list[str] = []
    section = False
    for line in docstring.replace("``", "`").splitlines():
        indented = line.startswith("    ")
        if indented and not section and lines and lines[-1] and not lines[-1].startswith(" "):
            # Right below a line of text this is a list; code has an empty line before it.
            section = True
            lines.append("")
        elif not indented:
            section = False
        if section:
            lines.append(f"- {line.strip()}" if re.match(r"    \S", line) else f"  {line.strip()}")
        else:
            lines.append(line)
    return "\n".join(lines) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0])
    parser.add_argument("--check", action="store_true", help="write nothing, compare")
    if parser.parse_args().check:
        old = stale()
        print("\n".join(old) or "all pages are up to date")
        return 1 if old else 0
    for path, text in pages():
        (FOLDER / path).parent.mkdir(parents=True, exist_ok=True)
        (FOLDER / path).write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
