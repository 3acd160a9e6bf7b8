"""``ccl.tuned_config``: the entry of a table that is used, and errors for a bad one. No device, one process."""

from __future__ import annotations

import json
import re

import pytest
import torch
from triton.backends.compiler import GPUTarget
from triton.runtime import driver

from iris_under_test.ccl import Config, tuned_config, tuning

KIB, MIB = 1 << 10, 1 << 20


def entry(nbytes=MIB, comm_sms=32, **changes):
    made = {
        "arch": "sm_90", "op": "all_gather", "use_gluon": False, "element_size": 2, "world_size": 4, "bytes": nbytes,
        "config": {"comm_sms": comm_sms}, "measured": None,
    }  # fmt: skip
    return {**made, **changes}


@pytest.fixture
def table(tmp_path, monkeypatch):
    """Writes entries, or any text, to the file that the variable names."""

    def write(*entries, text=None):
        path = tmp_path / "table.json"
        path.write_text(text if text is not None else json.dumps({"schema": 1, "entries": entries}))
        monkeypatch.setenv(tuning.TUNING_VARIABLE, str(path))
        tuning._read.cache_clear()
        tuning._nearest.cache_clear()
        return path

    yield write
    tuning._nearest.cache_clear()


def chosen(op="all_gather", element_size=2, world_size=4, nbytes=MIB, arch="sm_90", use_gluon=False):
    return tuned_config(
        op, element_size=element_size, world_size=world_size, nbytes=nbytes, arch=arch, use_gluon=use_gluon
    )


def test_the_nearest_size_counts_as_a_ratio(table):
    table(entry(8 * KIB, 1), entry(128 * KIB, 2), entry(MIB, 3))
    sizes = (1, 8 * KIB, 31 * KIB, 33 * KIB, 128 * KIB, 512 * KIB, 1 << 40)
    assert [chosen(nbytes=nbytes).comm_sms for nbytes in sizes] == [1, 1, 1, 2, 2, 3, 3]
    assert chosen(nbytes=0).comm_sms == 1, "an empty tensor has a configuration too"


def test_ll_counts_for_what_it_has(table):
    ll = {"comm_sms": 1, "protocol": "ll"}
    table(entry(8 * KIB, config=ll), entry(MIB, 2, world_size=16))
    assert [chosen(nbytes=8 * KIB, element_size=size).comm_sms for size in (1, 2, 4, 8)] == [1, 1, 1, 2]
    assert [chosen(nbytes=8 * KIB, world_size=size).comm_sms for size in (2, 8, 9, 64)] == [1, 1, 2, 2]
    one_shot = {**ll, "all_reduce_variant": "one_shot"}
    table(
        entry(op="all_reduce", config=one_shot), entry(op="broadcast", config=ll), entry(op="reduce_scatter", config=ll)
    )
    assert chosen("all_reduce").protocol == chosen("broadcast").protocol == "ll"
    for op, config, got in (
        ("all_reduce", ll, "all_reduce two_shot"),
        ("reduce", ll, "reduce"),
        ("send", ll, "send"),
        ("all_gather", {**ll, "all_gather_variant": "partitioned"}, "all_gather partitioned"),
    ):
        table(entry(op=op, config=config))
        with pytest.raises(ValueError, match=f"protocol 'll' is for all_gather, .*, got {got}$"):
            chosen(op)


def test_world_size_goes_before_element_size_and_that_before_bytes(table):
    table(
        entry(8 * KIB, 1, world_size=2),
        entry(MIB, 2, world_size=8),
        entry(8 * KIB, 3, world_size=8, element_size=4),
    )
    assert chosen(nbytes=8 * KIB, world_size=8).comm_sms == 2
    assert chosen(nbytes=8 * KIB, world_size=8, element_size=4).comm_sms == 3
    assert chosen(nbytes=MIB, world_size=3).comm_sms == 1
    table(entry(MIB, 4, world_size=2), entry(MIB, 5, world_size=8, element_size=4))
    assert chosen(world_size=8).comm_sms == 5


def test_a_tile_keeps_its_bytes(table):
    table(entry(config={"block_size_m": 4, "block_size_n": 256}))
    rows = {size: chosen(element_size=size).block_size_m for size in (1, 2, 4, 8, 16)}
    assert rows == {1: 8, 2: 4, 4: 2, 8: 1, 16: 1}
    assert chosen(element_size=8).block_size_n == 256


def test_each_call_returns_a_new_object(table):
    table(entry(config={"block_size_m": 4, "block_size_n": 256}))
    first = chosen()
    first.block_size_m = 16
    assert chosen().block_size_m == 4


def test_the_languages_have_entries_of_their_own(table):
    table(entry(comm_sms=8), entry(comm_sms=24, use_gluon=True))
    assert (chosen().comm_sms, chosen().use_gluon) == (8, False)
    assert (chosen(use_gluon=True).comm_sms, chosen(use_gluon=True).use_gluon) == (24, True)


def test_what_a_file_does_not_have_is_the_librarys_own(table):
    before = chosen("all_reduce")
    table(entry(comm_sms=7))
    assert chosen().comm_sms == 7
    assert chosen("all_reduce") == before
    assert chosen(arch="gfx942") == Config()


def test_variants_that_divide_by_the_members_need_the_right_number(table):
    table(
        entry(config={"all_gather_variant": "partitioned", "comm_sms": 32}),
        entry(config={"comm_sms": 5}, world_size=64),
        entry(op="all_reduce", config={"all_reduce_variant": "ring", "block_size_n": 64}),
    )
    assert chosen().all_gather_variant == "partitioned"
    assert (chosen(world_size=3).all_gather_variant, chosen(world_size=3).comm_sms) == ("persistent", 5)
    assert chosen("all_reduce", world_size=6).all_reduce_variant == "ring", "which has slices of any number of members"


def test_an_unknown_architecture_takes_its_makes(table):
    assert chosen(arch="sm_100") == chosen(arch="sm_90")
    assert chosen("all_to_all", arch="gfx90a") == chosen("all_to_all", arch="gfx942")
    assert chosen(arch="xe") == Config()
    table(entry(comm_sms=11, arch="sm_100"))
    assert chosen(arch="sm_120").comm_sms == 11


@pytest.mark.parametrize(
    ("target", "arch"),
    [(GPUTarget("cuda", 90, 32), "sm_90"), (GPUTarget("hip", "gfx942:sramecc+:xnack-", 64), "gfx942")],
)
def test_the_architecture_is_the_active_devices(table, monkeypatch, target, arch):
    class Active:
        def get_current_target(self):
            return target

        def get_active_torch_device(self):
            return torch.device("cuda")

    monkeypatch.setattr(driver, "_active", Active())
    table(entry(8 * KIB, 13, arch=arch), entry(comm_sms=14, arch="gfx950"), entry(comm_sms=15, arch="sm_80"))
    assert chosen(arch=None).comm_sms == 13


def test_each_call_has_its_own():
    first = chosen()
    first.comm_sms = 1
    assert chosen().comm_sms != 1


@pytest.mark.parametrize("arch", ["sm_90", "gfx942", "gfx950"])
@pytest.mark.parametrize("op", tuning.TUNED_OPS)
@pytest.mark.parametrize("use_gluon", [False, True])
def test_every_op_has_an_entry_for_every_architecture(arch, op, use_gluon):
    own = [actual for actual in tuning._own_table(arch) if (actual.op, actual.use_gluon) == (op, use_gluon)]
    assert own
    assert all(actual.arch == arch for actual in own)
    for size in (1, 2, 4, 8, 16):
        for world in (1, 2, 3, 5, 8):
            chosen(op, size, world, MIB, arch, use_gluon)


SLOWER = {("all_reduce", 8, 128 * MIB), ("all_reduce", 8, 512 * MIB), ("reduce_scatter", 8, 512 * MIB)}
"""NCCL's rings round sums to 16 bits at every member: see docs/results/h200.md."""


def test_what_was_measured_on_hopper():
    """The measured times of the entries are at least as good as torch.distributed's, except at the listed sizes, in
    both languages.
    """
    actual = [
        entry for entry in json.loads((tuning._TABLES / "sm_90.json").read_text())["entries"] if entry["measured"]
    ]
    assert {(entry["op"], entry["use_gluon"]) for entry in actual} == {
        (op, gluon)
        for op in ("all_gather", "reduce_scatter", "all_to_all", "all_reduce", "broadcast")
        for gluon in (False, True)
    }
    for entry in actual:
        ours, theirs = (float(text.replace(",", "")) for text in re.findall(r"([\d,.]+) us", entry["measured"]))
        assert (ours > theirs) == ((entry["op"], entry["world_size"], entry["bytes"]) in SLOWER), entry


def test_an_amd_gpu_has_the_defaults_until_somebody_measures():
    for arch in ("gfx942", "gfx950"):
        assert json.loads((tuning._TABLES / f"{arch}.json").read_text())["entries"][0]["measured"] is None
        assert chosen("reduce_scatter", arch=arch) == Config()
        assert chosen("all_to_all", arch=arch) == Config(block_size_n=128)


def test_an_amd_gpu_has_larger_tiles_for_what_is_large_and_only_moved():
    """One wait for the peers' stores per tile, since loads are counted behind stores: fewer, larger tiles."""
    for arch in ("gfx942", "gfx950"):
        for op in ("all_gather", "broadcast"):
            assert chosen(op, nbytes=2 * MIB, arch=arch) == Config()
            large = chosen(op, nbytes=128 * MIB, arch=arch)
            assert large == Config(block_size_m=32, block_size_n=256)


@pytest.mark.parametrize(
    ("text", "case"),
    [
        ("", "cannot be read as a table"),
        ("{", "cannot be read as a table"),
        ("[]", 'expected "schema": 1'),
        ('{"schema": 2, "entries": []}', 'expected "schema": 1'),
        ('{"schema": 1, "entries": {}}', 'a list "entries"'),
    ],
)
def test_a_file_that_is_no_table(table, text, case):
    path = table(text=text)
    with pytest.raises(ValueError, match=case) as caught:
        chosen()
    assert str(path) in str(caught.value)


def test_a_file_that_is_not_there(tmp_path, monkeypatch):
    monkeypatch.setenv(tuning.TUNING_VARIABLE, str(tmp_path / "none.json"))
    with pytest.raises(ValueError, match=r"none\.json cannot be read"):
        chosen()


@pytest.mark.parametrize(
    ("bad", "case"),
    [
        (7, "an entry must be an object with"),
        ({"arch": "sm_90"}, "an entry must be an object with"),
        (entry(more=1), "an entry must be an object with"),
        (entry(arch=90), "arch must be a name"),
        (entry(op="all_shuffle"), "op must be one of .*got 'all_shuffle'"),
        (entry(use_gluon=1), "use_gluon must be true or false, got 1"),
        (entry(element_size=0), "element_size must be a positive integer, got 0"),
        (entry(world_size=True), "world_size must be a positive integer, got True"),
        (entry(nbytes="1 MiB"), "bytes must be a positive integer, got '1 MiB'"),
        (entry(measured=3), "measured must be text or null"),
        (entry(config=[]), "config must be an object"),
        (entry(config={"comm_smz": 1}), "config has no field 'comm_smz'"),
        (entry(config={"use_gluon": True}), "config has no field 'use_gluon'"),
        (entry(config={"comm_sms": "64"}), "config's comm_sms must be of type int, got '64'"),
        (entry(config={"comm_sms": True}), "config's comm_sms must be of type int, got True"),
        (entry(config={"all_gather_variant": 3}), "config's all_gather_variant must be of type str"),
        (entry(config={"comm_sms": 0}), "comm_sms must be positive, got 0"),
        (entry(config={"comm_sms": 2048}), "comm_sms must be 1024 at most, got 2048"),
        (entry(config={"num_warps": 3}), "num_warps must be a power of two"),
        (entry(config={"block_size_m": 24}), "block_size_m must be a power of two, got 24"),
        (entry(op="reduce_scatter", config={"block_size_m": 16}), "block_size_m decides which tiles a rank"),
        (entry(use_gluon=True, config={"all_gather_variant": "partitioned"}), "cannot be 'partitioned' with use_gluon"),
    ],
)
def test_a_bad_entry_is_named(table, bad, case):
    """Also if another op is requested."""
    path = table(entry(), bad)
    with pytest.raises(ValueError, match=case) as caught:
        chosen("broadcast")
    assert str(caught.value).startswith(f"{path}, entry 1 (")


def test_an_op_that_there_is_not():
    with pytest.raises(ValueError, match=r"op must be one of all_gather, .*, got 'all_shuffle'"):
        chosen("all_shuffle")
