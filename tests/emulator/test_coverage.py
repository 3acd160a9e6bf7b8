"""Every opcode has a test, and ``python -m harness.emulator coverage`` reports the opcodes of listings."""

import json

from click.testing import CliRunner

from harness.emulator.__main__ import cli
from harness.emulator.driver.coverage import implemented
from harness.emulator.operations import TABLE
from harness.emulator.program.decode import ENDS
from tests.emulator.covering import edge_tested
from tests.emulator.semantics import SEMANTICS
from tests.emulator.single import listing


def test_every_opcode_has_an_edge_test():
    untested = sorted((set(TABLE) | set(ENDS)) - edge_tested())
    assert not untested, f"{len(untested)} opcodes have no edge test: {untested}"


def test_no_semantics_without_an_opcode():
    """A name in the semantics without an opcode tests nothing; packed ops are listed under the plain name."""
    from tests.emulator.test_ops_packed import PLAIN

    assert not set(SEMANTICS) - set(TABLE) - set(PLAIN.values())


def coverage(*arguments):
    return CliRunner().invoke(cli, ["coverage", *map(str, arguments)])


def test_the_command_passes_a_listing_that_runs(tmp_path):
    kernel = tmp_path / "kernel.amdgcn"
    kernel.write_text(listing("v_add_u32_e32 v0, v1, v2", "v_add_u32_e64 v0, v1, s2", "s_endpgm"))
    result = coverage(kernel)
    assert result.exit_code == 0, result.output
    counts = f"{len(implemented('gfx942'))} opcodes implemented, 0 lacking"
    assert result.output == f"gfx942: 1 listings, 3 instructions, 2 opcodes; {counts}\n"


def test_the_command_names_what_is_lacking_by_arch(tmp_path):
    """Several listings below a folder, of both archs, with an unknown opcode and an unknown form of an opcode."""
    deep = tmp_path / "cache" / "ab"
    deep.mkdir(parents=True)
    (deep / "one.amdgcn").write_text(listing("v_add_u32_e32 v0, v1, v2", "v_frobnicate_b32_e32 v0, v1", "s_endpgm"))
    other = listing("v_add_u32_e32 v0, v1, v2 quux:1", "s_endpgm").replace("gfx942", "gfx950")
    (tmp_path / "two.amdgcn").write_text(other)
    result = coverage("--json", tmp_path)
    assert result.exit_code == 1, result.output
    old, new = json.loads(result.stdout)
    assert (old["arch"], old["listings"], old["opcodes"]) == (
        "gfx942",
        1,
        {"s_endpgm": 1, "v_add_u32": 1, "v_frobnicate_b32": 1},
    )
    assert list(old["lacking"]) == ["v_frobnicate_b32"]
    assert "v_frobnicate_b32_e32 v0, v1" in old["lacking"]["v_frobnicate_b32"]
    assert (new["arch"], new["lacking"]) == ("gfx950", {})
    assert "quux" in new["refused"]["probe"]
    assert "v_frobnicate_b32, 1 times" in coverage(tmp_path).output


def test_the_command_refuses_what_is_no_listing(tmp_path):
    (tmp_path / "text").write_text("hello\n")
    assert coverage(tmp_path / "text").exit_code == 2
    assert "no amdgcn listing" in coverage(tmp_path).output
    old = tmp_path / "old.amdgcn"
    old.write_text(listing("s_endpgm").replace("gfx942", "gfx90a"))
    assert "compiled for gfx90a" in coverage(old).output
