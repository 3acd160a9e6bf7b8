"""``iris-harness cache``: an archive of compiled kernels, read as untrusted, that Triton uses in place of compiling."""

from __future__ import annotations

import gzip
import io
import json
import os
import subprocess
import sys
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest

from command_line import kernel_cache, main
from command_line.kernel_cache import entries, key_of, load, prune, save
from harness.errors import UsageError

ROOT = Path(__file__).resolve().parents[2]
HASHES = ["0" * 64, "ab" * 32]


def kernel(cache: Path, hash_: str, age: float = 0.0) -> Path:
    """An entry as Triton writes it, unused for ``age`` seconds."""
    entry = cache / key_of(hash_)
    entry.mkdir(parents=True)
    for name, text in (
        ("add.json", json.dumps({"hash": hash_})),
        ("add.amdgcn", "s_endpgm"),
        ("add.hsaco", "x" * 1000),
    ):
        (entry / name).write_text(text)
    (entry / "__grp__add.json").write_text(json.dumps({"child_paths": {"add.json": str(entry / "add.json")}}))
    for file in entry.iterdir():
        moment = file.stat().st_mtime - age
        os.utime(file, (moment, moment))
    return entry


def archive(
    path: Path, *members: tuple[str, bytes], change: Callable[[tarfile.TarInfo], None] = lambda info: None
) -> Path:
    with tarfile.open(path, "w:gz") as tar:
        for name, content in members:
            info = tarfile.TarInfo(name)
            info.size = len(content)
            change(info)
            tar.addfile(info, io.BytesIO(content))
    return path


def test_an_archive_adds_what_is_new_and_lists_its_files_anew(tmp_path: Path) -> None:
    for hash_ in HASHES:
        kernel(tmp_path / "a", hash_)
    (tmp_path / "a" / "emulator").mkdir()
    assert save(tmp_path / "a", tmp_path / "k.tar.gz", None) == 2
    mine = kernel(tmp_path / "b", HASHES[0])
    (mine / "add.amdgcn").write_text("mine")
    assert load(tmp_path / "k.tar.gz", tmp_path / "b") == (1, 1)
    assert (mine / "add.amdgcn").read_text() == "mine", "an entry that exists is kept"
    added = tmp_path / "b" / key_of(HASHES[1])
    assert (added / "add.amdgcn").read_text() == "s_endpgm"
    listed = json.loads((added / "__grp__add.json").read_text())["child_paths"]
    assert listed == {name: str(added / name) for name in ("add.amdgcn", "add.hsaco", "add.json")}
    assert sorted(path.name for path in (tmp_path / "b").iterdir()) == sorted(map(key_of, HASHES))


def test_the_same_kernels_give_the_same_bytes_and_evidence_selects_some(tmp_path: Path) -> None:
    for hash_ in HASHES:
        kernel(tmp_path / "a", hash_)
        kernel(tmp_path / "b", hash_, age=1000)
    for name in ("a", "b"):
        save(tmp_path / name, tmp_path / f"{name}.tar.gz", None)
    assert (tmp_path / "a.tar.gz").read_bytes() == (tmp_path / "b.tar.gz").read_bytes()
    assert save(tmp_path / "a", tmp_path / "one.tar.gz", {key_of(HASHES[1])}) == 1
    with pytest.raises(UsageError, match="no kernels to save"):
        save(tmp_path / "a", tmp_path / "none.tar.gz", {"B" * 52})
    assert not (tmp_path / "none.tar.gz").exists()


GOOD = (f"{key_of(HASHES[0])}/add.json", json.dumps({"hash": HASHES[0]}).encode())
KEY = key_of(HASHES[1])


def hostile(path: Path, name: str) -> Path:
    def link(info: tarfile.TarInfo) -> None:
        if info.name != GOOD[0]:
            info.type, info.linkname, info.size = tarfile.SYMTYPE, "/etc/passwd", 0

    made = {
        "upwards": lambda: archive(path, GOOD, ("../../precious.json", b"{}")),
        "absolute": lambda: archive(path, GOOD, (f"/{KEY}/add.json", b"{}")),
        "deeper": lambda: archive(path, GOOD, (f"{KEY}/../add.json", b"{}")),
        "link": lambda: archive(path, GOOD, (f"{KEY}/add.json", b""), change=link),
        "library": lambda: archive(path, GOOD, (f"{KEY}/launcher.so", b"\x7fELF")),
        "list": lambda: archive(path, GOOD, (f"{KEY}/__grp__add.json", b"{}")),
        "twice": lambda: archive(path, GOOD, GOOD),
        "no metadata": lambda: archive(path, GOOD, (f"{KEY}/add.hsaco", b"x")),
        "another kernel": lambda: archive(path, GOOD, (f"{KEY}/add.json", json.dumps({"hash": HASHES[0]}).encode())),
        "not JSON": lambda: archive(path, GOOD, (f"{KEY}/add.json", b"[" * 100_000)),
    }
    if name in made:
        return made[name]()
    whole = archive(path, GOOD).read_bytes()
    path.write_bytes({"cut": whole[:-20], "flipped": whole[:40] + b"\0\0\0\0" + whole[44:], "text": b"hello"}[name])
    return path


@pytest.mark.parametrize(
    "name",
    [
        *("upwards", "absolute", "deeper", "link", "library", "list", "twice", "no metadata", "another kernel"),
        *("not JSON", "cut", "flipped", "text"),
    ],
)
def test_what_no_export_writes_is_one_line_and_changes_nothing(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file = hostile(tmp_path / "k.tar.gz", name)
    cache = tmp_path / "inner" / "cache"
    monkeypatch.setattr(kernel_cache, "folder", lambda: cache)
    assert main.run(["cache", "import", str(file)]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1 and "k.tar.gz" in error, error
    assert list(cache.iterdir()) == [] and not list(tmp_path.rglob("precious*"))


def test_a_bomb_is_refused_by_its_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel_cache, "MOST_FILE_BYTES", 1 << 20)
    content = bytes(2 << 20)
    with pytest.raises(UsageError, match="too large"):
        load(archive(tmp_path / "k.tar.gz", GOOD, (f"{KEY}/add.hsaco", content)), tmp_path / "cache")
    assert (tmp_path / "k.tar.gz").stat().st_size < 10_000, "it is small until it is unpacked"


def test_prune_removes_the_longest_unused(tmp_path: Path) -> None:
    old, new = kernel(tmp_path, HASHES[0], age=3 * 86400), kernel(tmp_path, HASHES[1])
    assert prune(tmp_path, 10, None) == (0, 0)
    each = {entry.path: entry.bytes for entry in entries(tmp_path)}
    assert prune(tmp_path, None, each[new]) == (1, each[old]) and not old.exists() and new.exists()
    kernel(tmp_path, HASHES[0], age=3 * 86400)
    assert prune(tmp_path, 2, None) == (1, each[old]) and not old.exists() and new.exists()
    assert main.run(["cache", "prune"]) == 2, "without a limit nothing is removed"


PROGRAM = """
import torch, triton, triton.language as tl
from harness import emulator

@triton.jit
def add(p):
    tl.store(p + tl.arange(0, 64), tl.load(p + tl.arange(0, 64)) + 1)

emulator.activate()
x = torch.zeros(64)
add[(1,)](x)
assert x.eq(1).all()
"""


@pytest.mark.nightly
def test_triton_uses_an_imported_kernel_in_another_folder(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)

    def run(cache: Path, *command: str) -> str:
        environment = {**os.environ, "TRITON_CACHE_DIR": str(cache), "PYTHONPATH": str(ROOT)}
        done = subprocess.run(
            [sys.executable, *command], env=environment, capture_output=True, text=True, timeout=120, check=False
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    first, second, file = tmp_path / "first", tmp_path / "second", str(tmp_path / "k.tar.gz")
    run(first, str(program))
    exported = run(first, "-m", "command_line", "cache", "export", file)
    assert "k.tar.gz: 1 kernels, " in exported
    assert "1 new kernels, 0 were there" in run(second, "-m", "command_line", "cache", "import", file)
    [entry] = entries(second)
    before = {path: path.stat().st_mtime_ns for path in entry.path.iterdir()}
    run(second, str(program))
    assert {path: path.stat().st_mtime_ns for path in entry.path.iterdir()} == before, "it was compiled again"
    assert len(list(entries(second))) == 1
    assert gzip.decompress(Path(file).read_bytes())
