"""Build of the stand-in ``libamdhip64.so`` from ``native``: once for each source, compiler and version of the headers.

Structures and prototypes come from the HIP headers that Triton's AMD back end has. The library lies in the user's cache
folder, next to small libraries whose only content is another name (soname) for it: a program that opens
``libamdhip64.so.6`` reaches the same memory as one that opens ``libamdhip64.so``.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

from harness import locks
from harness.emulated_machine import facts
from harness.emulated_machine.hip import calls
from harness.errors import HarnessError

VERSION = (6, 4, 43482)
"""Version of the emulated ROCm, as ``torch.version.hip`` has it."""

NAME = "libamdhip64.so"
ALIASES = (*(f"{NAME}.{major}" for major in (5, 6, 7)), "libhipblaslt.so")
"""Other names that programs open: the soname of each major version of ROCm, and the library of matrix products."""

_NATIVE = Path(__file__).parent / "native"
_FLAGS = ("-std=gnu11", "-O2", "-fPIC", "-shared", "-fvisibility=hidden", "-Wall", "-Wno-unused-result")
_LIMIT = 240.0


def folder() -> Path:
    """Return the folder of the library; it exists only after ``built``.

    HarnessError without the headers of HIP.
    """
    digest = hashlib.sha256(" ".join([*compiler(), *_FLAGS]).encode())
    for text in (*(source.read_text() for source in sorted(_NATIVE.iterdir())), _facts(), _refused()):
        digest.update(text.encode())
    for header in ("hip_runtime_api.h", "driver_types.h", "hip_version.h"):
        digest.update((_headers() / "hip" / header).read_bytes())
    root = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return root / "iris-harness" / f"hip-{digest.hexdigest()[:16]}"


def built() -> Path:
    """Return the folder of the library, with the library in it.

    HarnessError if there is no C compiler, if it fails, or if the folder cannot be written.
    """
    target = folder()
    if target.is_dir():
        return target
    command = compiler()
    if not command:
        raise HarnessError(
            f"the emulated {NAME} needs a C compiler once, and none of cc, gcc, clang is in PATH: install one (Debian:"
            " apt-get install gcc; everywhere: pip install ziglang), or set CC"
        )
    with locks.held(locks.in_cache(target.parent, f"{target.name}.lock"), _LIMIT, f"the build of {NAME}"):
        if not target.is_dir():
            _build(command, target)
    return target


def link(directory: Path) -> None:
    """Make the library's names in ``directory`` links to ``folder()``, whether it is built yet or not.

    HarnessError without the headers of HIP; OSError if ``directory`` cannot be written.
    """
    target = folder()
    for name in (NAME, *ALIASES):
        link, wanted = directory / name, str(target / name)
        if link.is_symlink() and os.readlink(link) == wanted:
            continue
        new = directory / f".{name}.{os.getpid()}"
        new.unlink(missing_ok=True)
        new.symlink_to(wanted)
        os.replace(new, link)  # at once: another program may be opening it


def _build(command: list[str], target: Path) -> None:
    partial = target.with_name(f"{target.name}.{os.getpid()}")
    try:
        partial.mkdir(parents=True)
        (partial / "facts.h").write_text(_facts())
        (partial / "refused.c").write_text(_refused())
        sources = [str(path) for path in sorted(_NATIVE.glob("*.c"))]
        includes = [f"-I{partial}", f"-I{_NATIVE}", f"-isystem{_headers()}"]
        library = partial / NAME
        _run([*command, *_FLAGS, *includes, f"-Wl,-soname,{NAME}", *sources, str(partial / "refused.c"),
              "-lpthread", "-ldl", "-o", str(library)])  # fmt: skip
        (partial / "empty.c").write_text("")
        for alias in ALIASES:
            _run([*command, "-shared", "-fPIC", f"-Wl,-soname,{alias}", "-Wl,--no-as-needed", str(partial / "empty.c"),
                  f"-L{partial}", f"-l:{NAME}", "-Wl,-rpath,$ORIGIN", "-o", str(partial / alias)])  # fmt: skip
        os.replace(partial, target)
    except OSError as error:
        raise HarnessError(f"the emulated {NAME} cannot be built in {target.parent}: {error}") from error
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def _run(command: list[str]) -> None:
    # A compiler that is a Python program, as ziglang's, runs outside the machine: it would wait for this very build.
    environment = {name: value for name, value in os.environ.items() if not name.startswith("IRIS_HARNESS_")}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    if done.returncode:
        raise HarnessError(f"{command[0]} cannot compile the emulated {NAME}:\n{done.stderr[-3000:]}")


def compiler() -> list[str]:
    """Return the command of the C compiler, empty if there is none."""
    if named := os.environ.get("CC"):
        return shlex.split(named)
    for name in ("cc", "gcc", "clang"):
        if path := shutil.which(name):
            return [path]
    if importlib.util.find_spec("ziglang") is not None:
        return [sys.executable, "-m", "ziglang", "cc"]
    return []


def _headers() -> Path:
    """Return the folder that holds the headers of HIP, without importing Triton."""
    spec = importlib.util.find_spec("triton")
    for root in () if spec is None else spec.submodule_search_locations or ():
        include = Path(root) / "backends" / "amd" / "include"
        if (include / "hip" / "hip_runtime_api.h").exists():
            return include
    raise HarnessError(
        f"the emulated {NAME} is built with the HIP headers of Triton's AMD back end (triton/backends/amd/include), and"
        " this environment has none: pip install triton"
    )


def _facts() -> str:
    """Return a header with the GPUs of ``harness.emulated_machine.facts``."""
    major, minor, patch = VERSION
    rows = []
    for model in facts.MODELS.values():
        gpus = facts.gpus(model.arch, facts.MAX_GPUS)
        ids = ", ".join(f"{gpu.unique_id:#x}ull" for gpu in gpus)
        rows.append(
            f'    {{"{model.arch}", "{gpus[0].target}", "{model.name}", {model.memory}ul, {model.compute_units},'
            f" {model.clock}, {model.memory_clock}, {model.device_id:#x}, {model.compute_dies}, {{{ids}}}}},\n"
        )
    buses = ", ".join(f"{gpu.bus:#x}" for gpu in facts.gpus("gfx942", facts.MAX_GPUS))
    return (
        "#include <stddef.h>\n"
        "struct model {\n    const char *arch, *target, *name;\n    size_t memory;\n"
        "    int compute_units, clock, memory_clock, chip, compute_dies;\n"
        f"    unsigned long long unique_ids[{facts.MAX_GPUS}];\n}};\n"
        f"static const struct model facts_models[] __attribute__((unused)) = {{\n{''.join(rows)}}};\n"
        f"static const int facts_buses[] __attribute__((unused)) = {{{buses}}};\n"
        f'#define FACTS_PAGE "{calls.PAGE}"\n'
        f"#define FACTS_HIP_VERSION {major * 10_000_000 + minor * 100_000 + patch}\n"
    )


def _refused() -> str:
    """Return the C source of the refused calls: each prints one line, once, and returns the library's code for it."""
    lines = [
        "#include <stdio.h>",
        "static int refuse(const char *name, int *before, int code)",
        "{",
        "    if (!__atomic_exchange_n(before, 1, __ATOMIC_RELAXED))",
        '        fprintf(stderr, "iris-harness emulate: %s is not available on the emulated machine; "',
        f'            "{calls.PAGE} lists what is\\n", name);',
        "    return code;",
        "}",
        '#define REFUSE(name, code) __attribute__((visibility("default"))) int name(void) \\',
        "    { static int before; return refuse(#name, &before, code); }",
    ]
    hip = [f"REFUSE({name}, {calls.HIP_NOT_SUPPORTED})" for name in calls.refused()]
    blas = [f"REFUSE({name}, {calls.BLAS_NOT_SUPPORTED})" for name in calls.refused(calls.MATRIX_PRODUCTS)]
    return "\n".join([*lines, *hip, *blas]) + "\n"
