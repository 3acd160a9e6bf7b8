"""The packages of the emulator import each other in one direction, and only ``operations`` describes opcodes."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from harness.emulator.operations.table import TABLE
from tests.package.import_graph import imports, modules

REPOSITORY = Path(__file__).resolve().parents[2]
ROOT = REPOSITORY / "harness" / "emulator"
ORDER = (
    "faults",
    "stamps",
    "compilation",
    "listing",
    "native",
    "wavefront",
    "operations",
    "program",
    "execution",
    "watch",
    "driver",
    "commands",
)
"""Each package may import those before it. ``harness.emulator`` itself, the public API, comes before ``commands``."""

ABOUT_ORDER = {"s_waitcnt", "buffer_wbl2", "buffer_inv"}
SCOPES = {"global_", "buffer_", "flat_"}
CROSS_LANE = {
    "v_readfirstlane_b32", "v_readlane_b32", "v_writelane_b32", "v_swap_b32", "v_pk_mov_b32",
}  # fmt: skip
NAMED_ELSEWHERE = {
    # follows the value that a loop polls to its comparison
    "program/polling.py": {"v_cmp", "s_cmp", "s_waitcnt", "buffer_inv", "s_nop"},
    "listing/spellings.py": {"v_mfma_"},  # second spellings of opcodes
    "program/decode.py": ABOUT_ORDER | {"v_cmpx"},  # steps that order memory end a block; EXEC must be read again
    "program/build.py": {"v_fma_mixhi"},  # writes the upper half of its destination
    "watch/check/crosslane.py": CROSS_LANE
    | {
        "ds_bpermute_b32", "ds_permute_b32", "ds_swizzle_b32", "v_permlane16_swap_b32", "v_permlane32_swap_b32",
        "v_dot", "v_mfma", "v_smfmac", "v_cvt_scalef32_", "v_mqsad_u32_u8", "v_nop", "v_clrexcp", "s_movrel",
        "s_movrels",
    },  # rules of builders, which have no table entry with types
    "watch/check/hazards.py": {
        "v_cmpx", "v_cvt_", "v_readlane", "v_readfirstlane", "v_writelane", "v_div_fmas", "v_dot", "v_permlane",
        "v_permlane16_swap", "v_permlane32_swap", "v_smfmac", "s_setreg", "s_getreg", "s_movrel", "s_sendmsg", "s_nop",
    },  # pairs of instructions, whatever they compute
    "watch/check/mode.py": ABOUT_ORDER | {"s_setprio", "s_trap"},
    "watch/check/report.py": {"s_waitcnt"},
    "watch/race.py": ABOUT_ORDER | SCOPES,  # the memory model is about these instructions
    "watch/race_report.py": ABOUT_ORDER,
    "watch/race_swaps.py": {"v_and_or_b32"},  # puts back a part of what a compare-and-swap changes
    "watch/trace.py": ABOUT_ORDER,
    "watch/weak.py": ABOUT_ORDER | SCOPES,
}  # fmt: skip


def upward(root: Path) -> list[str]:
    """Return imports, by statement or string, of a later package, or of ``harness.emulator`` by one of its packages."""
    wrong = []
    for name, path in modules(root, ["harness"]).items():
        package = package_of(name)
        if package not in ORDER:
            continue
        for each in imports(path, root):
            target = package_of(each.name)
            later = target in ORDER[ORDER.index(package) + 1 :]
            if later or (target is not None and target not in ORDER and package != "commands"):
                wrong.append(f"{name} imports {each.name}")
    return wrong


def package_of(name: str) -> str | None:
    """Return the package of a name in the emulator, or a name that the emulator itself exports; None outside it."""
    parts = name.split(".")
    if parts[:2] != ["harness", "emulator"]:
        return None
    return parts[2] if len(parts) > 2 else "__init__"


def opcodes(root: Path) -> dict[str, set[str]]:
    """Return by file outside ``operations`` the mnemonics, or beginnings of mnemonics, in its strings."""
    known = {name.partition("@")[0] for name in TABLE}
    by_file: dict[str, set[str]] = {}
    for path in sorted(root.rglob("*.py")):
        where = path.relative_to(root)
        if where.parts[0] == "operations":
            continue
        tree = ast.parse(path.read_text())
        documented = (ast.Module, ast.ClassDef, ast.FunctionDef)
        docstrings = {id(n.body[0].value) for n in ast.walk(tree) if isinstance(n, documented) and ast.get_docstring(n)}
        for node in ast.walk(tree):
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docstrings:
                for word in re.findall(r"\b(?:[vs]|ds|global|buffer|flat|scratch)_[a-z0-9_]*", node.value):
                    if len(word) > 3 and any(name.startswith(word) for name in known):
                        by_file.setdefault(str(where), set()).add(word)
    return by_file


def test_packages_import_in_one_direction() -> None:
    single = {path.stem for path in ROOT.glob("*.py")} - {"__init__", "__main__"}
    packages = {path.parent.name for path in ROOT.glob("*/*.py")} | single
    assert packages == set(ORDER)
    assert upward(REPOSITORY) == []


@pytest.mark.parametrize(
    "line",
    [
        "from harness.emulator.driver.driver import activate",
        "from harness.emulator.driver import driver",
        "import harness.emulator.watch.race",
        "MODE = 'harness.emulator.watch.race:Race'",
        "def later():\n    import harness.emulator.commands.run",
        "import importlib\nimportlib.import_module('harness.emulator.execution.launch')",
        "from ..driver import driver",
        "from harness.emulator import activate",
        "from harness import emulator",
    ],
)
def test_a_planted_upward_import_is_seen(line: str, tmp_path: Path) -> None:
    listing = tmp_path / "harness" / "emulator" / "listing"
    listing.mkdir(parents=True)
    (listing / "planted.py").write_text(line + "\n")
    assert len(upward(tmp_path)) == 1


def test_an_opcode_is_described_in_one_place() -> None:
    """Exceptions are listed above with the reason; a name that is no longer used must leave the list."""
    assert opcodes(ROOT) == NAMED_ELSEWHERE


def test_a_planted_opcode_is_seen(tmp_path: Path) -> None:
    (tmp_path / "watch").mkdir()
    (tmp_path / "watch" / "planted.py").write_text('"""About v_add_f32."""\n\nROUNDED = ("v_add_f", "v_add3_u32")\n')
    assert opcodes(tmp_path) == {"watch/planted.py": {"v_add_f", "v_add3_u32"}}
