"""Operators of this field, applied to the source of the library under test.

Each operator is a function that yields the edits of one node of the syntax tree. Its name, with dashes, is the first
part of a mutant's id, and what stands before the first dash is its family: rank, mask, offset, scope, order, fence,
wait, epoch, dtype, tail, stride, cache.
"""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Callable, Container, Iterator
from itertools import pairwise

from mutants import planting
from mutants.generated.places import Edit, Source, mutants_of
from mutants.mutant import SOURCE, Mutant

Operator = Callable[[Source, ast.AST], Iterator[Edit]]

SKIPPED = (
    "bench/",
    "drivers/",
    "host/logging/",
    "experimental/",
    "host/platform/rocm/",
    "host/platform/cuda/",
    "host/platform/gpu/",
)
"""Files that the conformance suite does not run on the emulated device, or that print."""
NVIDIA = "device/targets/nvidia.py"
ON_GPUS = {"ops/launch.py": ("_suited",), "host/platform/timing.py": ("_EventClock",)}
"""Outermost functions and classes of which the emulated device executes nothing that a mutant changes: tiles for NVIDIA
GPUs, events of a GPU's stream."""

RANK = re.compile(
    r"(\w+\.)?(cur_rank|rank|to_rank|from_rank|source_rank|target_rank|dst_rank|src_rank|member|peer|root)"
)
STRIDE = re.compile(r"(\w+\.)?(\w*stride\w*|(in|out|a|b|c)_(m|n|k))")
EPOCH = re.compile(r"turn|count|call|epoch|generation|sequence|round")
FENCES = {"publish", "observe", "debug_barrier", "barrier", "host_barrier", "device_barrier", "synchronize", "signal"}
WAITS = {"wait", "await_count", "await_turn", "await_words", "acquire"}
WITHOUT_STREAMS = re.compile(r"(((\w+\.)*(_?platform|stream|cuda|_done|_work))|super\(\))\.(synchronize|wait)\(.*\)")
"""Calls that wait for work which a GPU's stream holds. On the emulated device they do nothing: a launch returns when
its kernel has ended."""
ONE_DEVICE = re.compile(r"(\w+\.)*_?platform\.(device|make_current)\(.*\)")
"""Calls that select a rank's device. The emulated one is the CPU for every rank."""
ACCESSES = re.compile(r"(tl|gl)\.(load|store|atomic_\w+)")
_INSTRUCTION = re.compile(r"^ *(s|v|buffer|global)_\w+", re.MULTILINE)
WEAKER = {"sys": "gpu", "gpu": "cta"}
_END = r"(?:\\n|\n *)?"
"""End of a line of assembly, as it is written in a string of one line or of several."""
ASSEMBLY_FENCES = (
    ("fence-written-back", re.compile(rf"buffer_wbl2[ \w]*{_END}")),
    ("fence-invalidated", re.compile(rf"buffer_inv[ \w]*{_END}")),
)
ASSEMBLY_WAITS = (
    ("wait-assembly", re.compile(rf"s_waitcnt [ \w()]*{_END}")),
    ("wait-states", re.compile(rf"s_nop \d+{_END}")),
)


def library_mutants() -> list[Mutant]:
    """Return all generated mutants of the bundled library, in the order of files and lines."""
    mutants: list[Mutant] = []
    for path in sorted(planting.SOURCE.rglob("*.py")):
        file = path.relative_to(planting.SOURCE).as_posix()
        if not file.startswith(SKIPPED) and file != NVIDIA and path.name != "__init__.py":
            mutants += mutants_in(file, planting.original(file))
    return mutants


@functools.cache
def mutants_in(file: str, text: str) -> tuple[Mutant, ...]:
    """Return the mutants of one file."""
    source = Source(text)
    edits = (
        (edit, ".".join(names))
        for node, names in source.nodes()
        if not names or names[0] not in ON_GPUS.get(file, ())
        for operator in OPERATORS
        for edit in operator(source, node)
    )
    return tuple(mutants_of(SOURCE, file, source, edits))


def _name(node: ast.expr) -> str:
    """Return the last part of a called name: ``wait`` of ``group.wait``."""
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def _replaced(operator: str, source: Source, node: ast.expr | ast.stmt | ast.keyword, new: str) -> Edit:
    return Edit(operator, *source.span(node), new)


def _dropped(operator: str, source: Source, keyword: ast.keyword) -> Edit:
    """Return an edit that removes a keyword argument and the comma next to it."""
    start, end = source.span(keyword)
    before = re.search(r",\s*$", source.text[:start])
    after = re.match(r",\s*", source.text[end:])
    return (
        Edit(operator, before.start(), end, "")
        if before
        else Edit(operator, start, end + after.end() if after else end, "")
    )


def _swapped(operator: str, source: Source, arguments: list[ast.expr], form: re.Pattern[str]) -> Iterator[Edit]:
    """Yield an edit for each two neighbours of ``arguments`` whose text has a form."""
    for one, two in pairwise(arguments):
        texts = source.of(one), source.of(two)
        if all(form.fullmatch(text) for text in texts):
            (start, middle), (behind, end) = source.span(one), source.span(two)
            yield Edit(operator, start, end, texts[1] + source.text[middle:behind] + texts[0])


def rank(source: Source, node: ast.AST) -> Iterator[Edit]:
    """Swap two ranks, or name the next one."""
    if isinstance(node, ast.Call) and not ONE_DEVICE.fullmatch(source.of(node)):
        yield from _swapped("rank-swapped", source, node.args, RANK)
        for argument in node.args:
            if RANK.fullmatch(source.of(argument)):
                yield _replaced("rank-next", source, argument, f"{source.of(argument)} + 1")


def mask(source: Source, node: ast.AST) -> Iterator[Edit]:
    """Drop a mask, or a part of one; invert it."""
    if isinstance(node, ast.keyword) and node.arg == "mask" and source.of(node.value) != "None":
        yield _replaced("mask-dropped", source, node.value, "None")
    if isinstance(node, ast.Assign) and any("mask" in _name(target) for target in node.targets):
        yield _replaced("mask-inverted", source, node.value, f"~({source.of(node.value)})")
        if isinstance(node.value, ast.BinOp) and isinstance(node.value.op, ast.BitAnd):
            yield _replaced("mask-left", source, node.value, source.of(node.value.left))
            yield _replaced("mask-right", source, node.value, source.of(node.value.right))


def offset(source: Source, node: ast.AST) -> Iterator[Edit]:
    """Access the element after the right one, or the one at the base."""
    if isinstance(node, ast.Call) and node.args and ACCESSES.fullmatch(source.of(node.func)):
        pointer = node.args[0]
        yield _replaced("offset-next", source, pointer, f"{source.of(pointer)} + 1")
        if isinstance(pointer, ast.BinOp) and isinstance(pointer.op, ast.Add):
            yield _replaced("offset-dropped", source, pointer, source.of(pointer.left))


def scope(source: Source, node: ast.AST) -> Iterator[Edit]:
    """Use the next smaller scope; not that of a work-group for a relaxed atomic, which is the same instruction on AMD
    GPUs as one at the scope of the GPU."""
    if isinstance(node, ast.Call):
        named = {keyword.arg: keyword for keyword in node.keywords}
        order = source.of(named["sem"].value) if "sem" in named else ""
        keyword = named.get("scope")
        if keyword is not None and isinstance(keyword.value, ast.Constant):
            smaller = WEAKER.get(keyword.value.value)  # type: ignore[arg-type]
            if smaller is not None and (smaller, order) != ("cta", '"relaxed"'):
                yield _replaced("scope-smaller", source, keyword.value, f'"{smaller}"')
        elif keyword is not None and source.of(keyword.value) == "scope":
            yield _dropped("scope-dropped", source, keyword)
    yield from _in_assembly("scope-bits", source, node, re.compile(r"sc0 sc1"), "sc1")


def order(source: Source, node: ast.AST) -> Iterator[Edit]:
    """Make an atomic relaxed."""
    if isinstance(node, ast.keyword) and node.arg == "sem" and source.of(node.value) not in ('"relaxed"', "None"):
        yield _replaced("order-relaxed", source, node.value, '"relaxed"')


def fence(source: Source, node: ast.AST) -> Iterator[Edit]:
    """Remove a call of a fence, signal or barrier, or a fence's instruction."""
    if (call := _called(source, node, FENCES)) is not None:
        yield _replaced("fence-removed", source, call, "pass")
    for operator, form in ASSEMBLY_FENCES:
        yield from _in_assembly(operator, source, node, form, "")


def wait(source: Source, node: ast.AST) -> Iterator[Edit]:
    """Remove a wait, or wait for one less."""
    if (call := _called(source, node, WAITS)) is not None:
        yield _replaced("wait-removed", source, call, "pass")
        for argument in call.args:
            if any(EPOCH.fullmatch(_name(part)) for part in ast.walk(argument) if isinstance(part, ast.Name)):
                yield _replaced("wait-less", source, argument, f"{source.of(argument)} - 1")
    for operator, form in ASSEMBLY_WAITS:
        yield from _in_assembly(operator, source, node, form, "")


def epoch(source: Source, node: ast.AST) -> Iterator[Edit]:
    """Do not advance a turn, or advance it by one more."""
    if isinstance(node, ast.AugAssign) and EPOCH.fullmatch(_name(node.target)):
        yield _replaced("epoch-kept", source, node, "pass")
        yield _replaced("epoch-skipped", source, node.value, f"{source.of(node.value)} + 1")
    if isinstance(node, ast.BinOp) and re.fullmatch(rf"({EPOCH.pattern}) \+ 1", source.of(node)):
        yield _replaced("epoch-kept", source, node, source.of(node.left))
        yield _replaced("epoch-skipped", source, node.right, "2")


def dtype(source: Source, node: ast.AST) -> Iterator[Edit]:
    """Count in 32 bits, or accumulate in the narrow type."""
    if isinstance(node, ast.Attribute) and node.attr == "int64" and _name(node.value) in ("tl", "gl"):
        yield _replaced("dtype-int32", source, node, f"{source.of(node.value)}.int32")
    if isinstance(node, ast.Call) and _name(node.func) == "widened" and node.args:
        yield _replaced("dtype-narrow", source, node, source.of(node.args[0]))
    if isinstance(node, ast.Call) and (wide := re.fullmatch(r"(?s)(.+)\.to\((tl|gl)\.float32\)", source.of(node))):
        yield _replaced("dtype-narrow", source, node, wide[1])


def tail(source: Source, node: ast.AST) -> Iterator[Edit]:
    """Round down instead of up, or include the element after the last."""
    if isinstance(node, ast.Call) and _name(node.func) == "cdiv" and len(node.args) == 2:
        yield _replaced("tail-cut", source, node, f"(({source.of(node.args[0])}) // ({source.of(node.args[1])}))")
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.FloorDiv):
        text = source.of(node.left)
        if isinstance(node.left, ast.UnaryOp) and isinstance(node.left.op, ast.USub):
            yield _replaced("tail-cut", source, node.left, source.of(node.left.operand))
        elif (rounding := re.fullmatch(r"(?s)\(?(.+) \+ .+ - 1\)?", text)) is not None:
            yield _replaced("tail-cut", source, node.left, rounding[1])
    if isinstance(node, ast.Compare) and len(node.ops) == 1 and isinstance(node.ops[0], ast.Lt):
        left, right = source.span(node.left)[1], source.span(node.comparators[0])[0]
        yield Edit("tail-beyond", left, right, source.text[left:right].replace("<", "<=", 1))


def stride(source: Source, node: ast.AST) -> Iterator[Edit]:
    """Swap two strides."""
    if isinstance(node, ast.Call):
        yield from _swapped("stride-swapped", source, node.args, STRIDE)
        if isinstance(node.func, ast.Attribute) and node.func.attr == "stride" and len(node.args) == 1:
            other = {"0": "1", "1": "0"}.get(source.of(node.args[0]))
            if other is not None:
                yield _replaced("stride-other", source, node.args[0], other)


def cache(source: Source, node: ast.AST) -> Iterator[Edit]:
    """Drop a cache modifier or ``volatile``."""
    if isinstance(node, ast.keyword) and node.arg in ("cache_modifier", "volatile") and source.of(node.value) != "None":
        yield _dropped("cache-dropped", source, node)


OPERATORS: tuple[Operator, ...] = (
    rank, mask, offset, scope, order, fence, wait, epoch, dtype, tail, stride, cache,
)  # fmt: skip


def _called(source: Source, node: ast.AST, names: Container[str]) -> ast.Call | None:
    """Return the call that a statement is, if it is one of these functions and not one of ``WITHOUT_STREAMS``."""
    call = node.value if isinstance(node, ast.Expr) else None
    if not isinstance(call, ast.Call) or _name(call.func) not in names or WITHOUT_STREAMS.fullmatch(source.of(call)):
        return None
    return call


def _in_assembly(operator: str, source: Source, node: ast.AST, form: re.Pattern[str], new: str) -> Iterator[Edit]:
    """Yield an edit for each match of ``form`` in a string of assembly text, as it is written in the source."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str) and _INSTRUCTION.search(node.value):
        start, end = source.span(node)
        for match in form.finditer(source.text[start:end]):
            yield Edit(operator, start + match.start(), start + match.end(), new)
