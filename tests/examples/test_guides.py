"""The guides to the library: their code runs, or is that of an example that runs; names and links lead somewhere.

On docs/context-tensor.md, docs/collectives.md and the overviews the blocks of a page are one program, in which ``ctx``
is an Iris. On docs/api-comparison.md every block without an import stands, letter for letter, in a side-by-side
program.
"""

import importlib
import importlib.util
import re
import tempfile
import types
from pathlib import Path

import pytest
import triton

from iris_under_test.ccl.config import ALL_GATHER_VARIANTS, ALL_REDUCE_VARIANTS, Config
from tests.examples.programs import ROOT, run
from tests.iris.ranks import run_checks
from tests.package.public_surface import names_of

DOCS = ROOT / "docs"
COMPARISON, CONTEXT, NAMES, MEMORY, COLLECTIVES = (
    DOCS / f"{name}.md" for name in ("api-comparison", "context-tensor", "names", "memory-model", "collectives")
)
OVERVIEWS = [DOCS / f"reference/{language}/overview.md" for language in ("gluon", "triton")]
EVERY_PAGE = sorted([*DOCS.rglob("*.md"), ROOT / "examples/README.md"])
PAGES = [COMPARISON, CONTEXT, NAMES, MEMORY, *(DOCS / "reference").rglob("*.md"), ROOT / "examples/README.md"]
SIDE_BY_SIDE = [path.read_text(encoding="utf-8") for path in (ROOT / "examples/side_by_side").glob("*.py")]
# Names that the pages use without defining them, besides ``ctx``.
IMPORTS = """
import torch
import triton
import triton.language as tl
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from iris_under_test.gluon import IrisDeviceCtx
"""
# The two halves of a message that docs/memory-model.md shows, in kernels.
MESSAGE = """
@gluon.jit
def write(IrisDeviceCtx: gl.constexpr, context, inbox, flag, to_rank, LANES: gl.constexpr):
    ctx = IrisDeviceCtx.initialize(context)
    lane = gl.arange(0, LANES, layout=gl.BlockedLayout([1], [LANES], [1], [0]))
    values = lane + ctx.cur_rank
{write}

@gluon.jit
def read(IrisDeviceCtx: gl.constexpr, context, inbox, flag, out, wanted, LANES: gl.constexpr):
    ctx = IrisDeviceCtx.initialize(context)
    lane = gl.arange(0, LANES, layout=gl.BlockedLayout([1], [LANES], [1], [0]))
{read}
    gl.store(out + lane, values)

lanes = triton.runtime.driver.active.get_current_target().warp_size
rank, world = ctx.get_rank(), ctx.get_num_ranks()
inbox, out, flag = (ctx.zeros(n, dtype=torch.int32) for n in (lanes, lanes, 1))
write[(1,)](IrisDeviceCtx, ctx.get_device_context(), inbox, flag, (rank + 1) % world, lanes, num_warps=1)
read[(1,)](IrisDeviceCtx, ctx.get_device_context(), inbox, flag, out, 1, lanes, num_warps=1)
assert out.tolist() == [i + (rank - 1) % world for i in range(lanes)]
ctx.barrier()
"""


def blocks(page: Path) -> list[str]:
    return re.findall(r"```python\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)


def execute(text: str, ctx) -> None:
    """Runs ``text`` as a module that has ``ctx``; from a file, since Triton reads its kernels' source."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "page.py"
        path.write_text(IMPORTS + text, encoding="utf-8")
        spec = importlib.util.spec_from_file_location("page", path)
        module = importlib.util.module_from_spec(spec)
        module.ctx = ctx
        spec.loader.exec_module(module)


def context_tensor(ctx, rank, num_ranks):
    execute("\n\n".join(blocks(CONTEXT)), ctx)


def overview_of_gluon(ctx, rank, num_ranks):
    execute("\n\n".join(blocks(OVERVIEWS[0])), ctx)


def overview_of_triton(ctx, rank, num_ranks):
    execute("\n\n".join(blocks(OVERVIEWS[1])), ctx)


def comparison(ctx, rank, num_ranks):
    [host] = [block for block in blocks(COMPARISON) if "import" in block]
    execute(host, ctx)


def memory_model(ctx, rank, num_ranks):
    write, read = (re.sub("^", "    ", block, flags=re.MULTILINE) for block in blocks(MEMORY))
    execute(MESSAGE.format(write=write, read=read), ctx)


def collectives(ctx, rank, num_ranks):
    """All but the device graph, which tests/gpu/test_collectives.py has."""
    shown = [block for block in blocks(COLLECTIVES) if not block.startswith("# on a GPU")]
    assert len(shown) == len(blocks(COLLECTIVES)) - 1
    execute("\n\n".join(shown), ctx)


def a_wrong_page_is_seen(ctx, rank, num_ranks):
    wrong = "\n\n".join(blocks(CONTEXT)).replace("2 + world + 17", "2 + world + 18")
    with pytest.raises(AssertionError):
        execute(wrong, ctx)


# The tracing that context_tensor enables stays enabled.
CHECKS = [
    a_wrong_page_is_seen,
    overview_of_gluon,
    overview_of_triton,
    memory_model,
    comparison,
    collectives,
    context_tensor,
]


@pytest.fixture(scope="module")
def failures():
    return run_checks(CHECKS, num_ranks=2, heap_size=1 << 22, emulated=True)


@pytest.mark.nightly
@pytest.mark.parametrize("name", [check.__name__ for check in CHECKS])
def test_code_on_two_emulated_ranks(failures, name):
    assert failures[name] == "", failures[name]


@pytest.mark.parametrize("variant", [*ALL_REDUCE_VARIANTS, *(set(ALL_GATHER_VARIANTS) - {Config.all_gather_variant})])
def test_the_page_of_collectives_has_every_variant(variant):
    assert f"`{variant}`" in COLLECTIVES.read_text(encoding="utf-8")


def test_the_comparison_shows_programs_that_run():
    shown = [block for block in blocks(COMPARISON) if "import" not in block]
    assert len(shown) > 15
    for block in shown:
        for part in block.strip().split("\n\n\n"):
            assert any(part in text for text in SIDE_BY_SIDE), part


def reachable(name: str) -> bool:
    """Return whether ``name`` can be imported: a module path, then attributes."""
    parts = f"iris_under_test.{name}".split(".")
    for cut in range(len(parts), 0, -1):
        try:
            actual = importlib.import_module(".".join(parts[:cut]))
        except ModuleNotFoundError:
            continue
        try:
            for part in parts[cut:]:
                actual = getattr(actual, part)
        except AttributeError:
            return False
        return True
    return False


def moved() -> list[list[str]]:
    rows = [line.split("|")[1:-1] for line in NAMES.read_text(encoding="utf-8").splitlines() if line.startswith("| `")]
    return [[cell.strip(" `") for cell in row] for row in rows if len(row) == 3]


@pytest.mark.parametrize(("old", "new", "state"), moved())
def test_names(old, new, state):
    assert reachable(new), f"{new} is not there"
    assert reachable(old) == {"kept": True, "gone": False}[state], f"{old} is not {state}"


def test_kept_names_are_the_same_objects():
    def actual(name):
        module, _, attribute = f"iris_under_test.{name}".rpartition(".")
        return getattr(importlib.import_module(module), attribute)

    kept = [(old, new) for old, new, state in moved() if state == "kept"]
    assert len(kept) >= 6
    for old, new in kept:
        assert actual(old) is actual(new), old


def modules_of_the_reference() -> set[str]:
    """Modules of the library that a page of docs/reference shows."""
    text = "\n".join(path.read_text(encoding="utf-8") for path in (DOCS / "reference").rglob("*.md"))
    whole = re.findall(r"^\.\. autoapimodule:: iris_under_test\.(\S+)$", text, re.MULTILINE)
    # One by one where the package has a function of the module's name.
    single = re.findall(r"^\.\. autoapi(?:function|class):: iris_under_test\.(\S+)\.\w+$", text, re.MULTILINE)
    return {*whole, *single}


def defined_in(path: str) -> str:
    """Module, below the package, whose ``__all__`` lists what ``path`` names."""
    member = importlib.import_module("iris_under_test")
    module = ""
    for part in path.split("."):
        if isinstance(member, types.ModuleType):
            module, owner = member.__name__, member
            member = getattr(member, part, None) or importlib.import_module(f"{owner.__name__}.{part}")
            # Of a class or function its own module; Triton's wrappers hand theirs on.
            module = getattr(member, "__module__", None) or module
        else:
            break
    return module.removeprefix("iris_under_test").removeprefix(".")


def test_every_public_name_is_on_a_reference_page():
    shown = modules_of_the_reference()
    missing = {name.name for name in names_of() if is_code(name.name) and defined_in(name.name) not in shown}
    # For those who extend the library: a part of its own operations.
    assert missing == {"device.triton.translate"}


def test_every_module_of_the_reference_lists_its_public_names():
    for name in modules_of_the_reference():
        module = importlib.import_module(f"iris_under_test.{name}")
        assert module.__all__, name


def is_code(name: str) -> bool:
    """Return whether ``name``, from below the package, is a function, a class or a method."""
    actual = importlib.import_module("iris_under_test")
    for part in name.split("."):
        if isinstance(actual, types.ModuleType) and not hasattr(actual, part):
            actual = importlib.import_module(f"{actual.__name__}.{part}")
        else:
            actual = getattr(actual, part, None)
    # A kernel's constant has __call__.
    return callable(actual) and not isinstance(actual, triton.language.constexpr)


@pytest.mark.parametrize(
    "page", [*DOCS.rglob("*.md"), ROOT / "examples/README.md"], ids=lambda page: str(page.relative_to(ROOT))
)
def test_links_lead_somewhere_and_no_machine_is_named(page):
    text = re.sub(r"```.*?```|`[^`\n]*`", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    for target in re.findall(r"\]\(([^)#]+)\)", text):
        assert (page.parent / target).exists(), f"links to {target}"
    assert not re.search(r"/(work|opt|root|home)/|https?://", text)


def commands() -> list[str]:
    fences = [fence for page in PAGES for fence in re.findall(r"```sh\n(.*?)```", page.read_text("utf-8"), re.DOTALL)]
    return sorted({line for fence in fences for line in fence.splitlines() if line})


MESSAGES = "python examples/06_message_passing/message_passing_gluon.py"
START = "torchrun --standalone --nproc_per_node=2"
REDUCE = f"{START} examples/24_ccl_all_reduce/example.py --validate"
GATHER = f"{START} examples/25_ccl_all_gather/example.py --validate"
TRACED = f"{START} examples/32_gluon_all_gather_tracing/all_gather_tracing.py --validate"
GEMM = (
    "python examples/07_gemm_all_scatter/gluon/benchmark.py -v -b -t -d -m 61 -n 90 -k 78 --tiles 32x32x32 "
    "--gemm_sms 3 --fewest_steps 1 --rounds 2 --heap_size 1048576"
)
# Run by other tests: as they stand, or, of the programs that are modules to their test, what they do.
ELSEWHERE = {
    "test_programs": {
        MESSAGES,
        f"{MESSAGES} -t fp16 -s 10000 -b 256 -p 1048576",
        REDUCE,
        f"{REDUCE} --use_gluon --all_reduce_variant ring -m 13 -n 70",
        f"{TRACED} -m 64 -n 70",
        GATHER,
        f"{GATHER} --use_gluon -m 13 -n 70 --datatype bf16",
    },
    "test_gemm_all_scatter": {GEMM},
    "test_published": {
        "torchrun --standalone --nproc_per_node=2 examples/published_usage.py",
        "python examples/published_message_passing.py",
    },
    "test_side_by_side": {
        f"python examples/side_by_side/{name}.py" for name in ("put", "get", "accumulate", "message", "collectives")
    },
    "test_memory_model": {"python examples/memory_model.py"},
    "tests/emulator/test_guide": {"python examples/handshake.py"},
    "tests/package/test_readme": {"iris-harness emulate -- python examples/gpu_softmax.py"},
}


@pytest.mark.nightly
@pytest.mark.parametrize(
    "command", [command for command in commands() if command not in set().union(*ELSEWHERE.values())]
)
def test_command(command, tmp_path):
    done = run(command, tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr


def test_commands_run_elsewhere_are_in_a_guide():
    assert set().union(*ELSEWHERE.values()) <= set(commands())
