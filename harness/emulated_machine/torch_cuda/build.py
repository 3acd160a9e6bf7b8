"""Compile and load the C++ part: once for each version of torch and Python, into the user's cache folder."""

from __future__ import annotations

import hashlib
import importlib.util
import os
import shlex
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path
from types import ModuleType

import torch

from harness import locks
from harness.errors import MachineError

_NAME = "_emulated_cuda"
_SOURCES = Path(__file__).parent / "native"


def load() -> ModuleType:
    """Return the compiled module; compile it if the cache folder does not have it.

    ``MachineError`` if torch is a build for GPUs, if there is no C++ compiler, or if it fails.
    """
    if torch.version.cuda or torch.version.hip:
        # Its own CUDA part would be registered twice, and torch ends the process without a traceback.
        raise MachineError(
            f"torch {torch.__version__} is a build for GPUs, and the emulated GPUs need a CPU build: install PyTorch's"
            " CPU build, in another environment if this one also runs on GPUs (docs/start/install.md)"
        )
    path = _folder() / f"{_NAME}.so"
    if not path.exists():
        with locks.held(_folder() / "build.lock", 600.0, "the compilation of the emulated GPUs of torch"):
            if not path.exists():
                _compile(path)
    spec = importlib.util.spec_from_file_location(_NAME, path)
    assert spec is not None, path
    assert spec.loader is not None, path
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _folder() -> Path:
    root = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    digest = hashlib.sha256(f"{torch.__version__} {sys.version} {shlex.join(_command(Path('cxx')))}".encode())
    for source in sorted(_SOURCES.iterdir()):
        digest.update(source.read_bytes())
    folder = root / "iris-harness" / f"torch-cuda-{digest.hexdigest()[:16]}"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def _command(output: Path) -> list[str]:
    root = Path(torch.__file__).parent
    library = root / "lib"
    # Headers since torch 2.10 or so are C++20; earlier ones accept it.
    return [
        "-std=c++20", "-O1", "-g0", "-fPIC", "-shared", "-w", f"-DTORCH_EXTENSION_NAME={_NAME}",
        f"-D_GLIBCXX_USE_CXX11_ABI={int(torch._C._GLIBCXX_USE_CXX11_ABI)}",
        f"-I{root / 'include'}", f"-I{root / 'include/torch/csrc/api/include'}",
        f"-I{sysconfig.get_paths()['include']}", str(_SOURCES / "module.cpp"), "-o", str(output),
        f"-L{library}", "-ltorch_python", "-ltorch", "-ltorch_cpu", "-lc10", f"-Wl,-rpath,{library}",
    ]  # fmt: skip


def _compile(path: Path) -> None:
    named = os.environ.get("CXX")
    compiler = named or next(filter(shutil.which, ("c++", "g++", "clang++")), None)
    if compiler is None:
        raise MachineError(
            "the emulated GPUs of torch need a C++ compiler once, and none of c++, g++, clang++ is in PATH: install"
            " one (Debian: apt-get install g++), or set CXX"
        )
    print("iris-harness: compiling the emulated GPUs for torch (once, about half a minute)", file=sys.stderr)
    partial = path.with_suffix(f".{os.getpid()}")
    try:
        done = subprocess.run([*shlex.split(compiler), *_command(partial)], capture_output=True, text=True, check=False)
        if done.returncode:
            raise MachineError(
                f"{compiler} cannot compile the emulated GPUs for torch {torch.__version__} (status {done.returncode});"
                f" set CXX to a compiler for C++20, such as g++ 10 or clang++ 12. {done.stderr[-3000:].strip()}".strip()
            )
        partial.replace(path)
    except OSError as error:
        why = error.strerror or error
        raise MachineError(f"the C++ compiler {compiler} cannot be run: {why}; set CXX to one that can") from error
    finally:
        partial.unlink(missing_ok=True)
