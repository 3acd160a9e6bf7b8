"""A small library and a small suite for tests of the gate: two ops, a helper of one, and a kernel's context."""

from __future__ import annotations

import subprocess
from pathlib import Path

from command_line.gate.reach import Map, made

FILES = {
    "lib/__init__.py": '"""A library."""\n',
    "lib/core/__init__.py": "",
    "lib/core/host.py": '''"""Host code."""

from .helpers import checked
from .kernels import copy_kernel

LIMIT = 4


class Instance:
    """An instance."""

    kind = "plain"

    def put(self, n):
        """Put."""
        return checked(n)

    def get(self, n):
        return n
''',
    "lib/core/helpers.py": """def checked(n):
    return n if n < 10 else 0


def unused(n):
    return n
""",
    "lib/core/kernels.py": """from triton import jit
from triton import language as tl

from . import vendor

table = vendor


class Context:
    @jit
    def put(self, pointer):
        publish_all(pointer)

    @jit
    def get(self, pointer):
        tl.load(pointer)


@jit
def publish_all(pointer):
    table.publish(pointer)


@jit
def copy_kernel(pointer):
    Context(pointer).put(pointer)


@jit
def load(pointer):
    pass
""",
    "lib/core/vendor.py": """from triton import jit


@jit
def publish(pointer):
    pass


@jit
def observe(pointer):
    pass
""",
    "suite/__init__.py": "",
    "suite/support.py": "WORDS = 1\n",
    "suite/test_put.py": "from suite.support import WORDS\n",
    "suite/test_get.py": "",
    "suite/requirements.toml": "",
}


def write(folder: Path, **changed: str) -> Path:
    """Write the library and the suite to a folder, with other texts for some files, named as lib__host."""
    for name, text in FILES.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(changed.get(name.removesuffix(".py").replace("/", "__"), text), encoding="utf-8")
    return folder


def edit(folder: Path, file: str, old: str, new: str) -> None:
    """Replace a text that occurs once in a file of the library."""
    path = folder / file
    text = path.read_text("utf-8")
    assert text.count(old) == 1, (file, old)
    path.write_text(text.replace(old, new), encoding="utf-8")


def records(folder: Path) -> list[dict[str, object]]:
    """Return what a recording of the library would have written: PUT calls Instance.put, GET Instance.get."""

    def line(name: str) -> int:
        return next(
            n
            for n, text in enumerate((folder / "lib/core/host.py").read_text("utf-8").splitlines(), 1)
            if f"def {name}(" in text
        )

    def kernel(name: str) -> int:
        lines = (folder / "lib/core/kernels.py").read_text("utf-8").splitlines()
        return next(n for n, text in enumerate(lines) if f"def {name}(" in text)  # the line of its decorator

    def one(requirement: str, *places: str) -> dict[str, object]:
        test = folder / "suite" / f"test_{requirement.lower()}.py"
        return {"requirement": requirement, "test": str(test), "places": list(places), "problem": ""}

    host, kernels = folder / "lib/core/host.py", folder / "lib/core/kernels.py"
    return [
        one("PUT", f"{host}:{line('put')}", f"{kernels}:{kernel('copy_kernel')}"),
        one("GET", f"{host}:{line('get')}"),
        {"end": True},
    ]


def map_of(folder: Path) -> Map:
    """Return the map of the library."""
    run = {"level": "gate", "arch": "gfx942", "triton": "1", "harness": "0"}
    return made(records(folder), {}, "lib", folder / "lib", folder / "suite", run)


def git(folder: Path, *arguments: str) -> str:
    """Run git in a folder, with an identity of its own."""
    who = ["-c", "user.name=a", "-c", "user.email=a@b", "-c", "init.defaultBranch=main", "-c", "commit.gpgsign=false"]
    done = subprocess.run(["git", *who, *arguments], cwd=folder, capture_output=True, text=True, check=True, timeout=60)
    return done.stdout.strip()


def commit(folder: Path) -> str:
    """Commit everything in a folder, which becomes a repository, and return the commit."""
    if not (folder / ".git").exists():
        git(folder, "init", "-q")
    git(folder, "add", "-A")
    git(folder, "commit", "-q", "-m", "state", "--allow-empty")
    return git(folder, "rev-parse", "HEAD")
