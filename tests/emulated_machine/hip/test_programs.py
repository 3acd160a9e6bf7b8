"""Programs that call HIP through ctypes on the emulated machine."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from harness.emulated_machine import Settings
from harness.emulated_machine.hip import build, calls

ROOT = Path(__file__).resolve().parents[3]


@pytest.mark.parametrize("program", ["memory", "ipc", "virtual_memory", "matrix_product"])
def test_a_program_on_hip(program):
    before = set(os.listdir("/dev/shm"))
    command = [sys.executable, "-m", "tests.emulated_machine.hip.programs", program]
    environment = Settings(gpus=2).environment(os.environ)
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0 and done.stdout.endswith("passed\n"), done.stdout + done.stderr
    assert not [name for name in set(os.listdir("/dev/shm")) - before if "hip" in name]


def test_the_calls_return_what_amd_documents():
    command = [sys.executable, "-m", "tests.emulated_machine.hip.answers"]
    environment = Settings(gpus=2).environment(os.environ)
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0 and done.stdout.endswith("passed\n"), done.stdout + done.stderr
    # What a library lacks is named with the page: whole calls, and types and attributes of calls that are there.
    lines = [line for line in done.stderr.splitlines() if calls.PAGE in line]
    for name in ("hipIpcGetEventHandle", "hipMemPoolCreate", "hipblasLtGetVersion", "hipblasLtMatrixTransform",
                 "hipblasLtMatmul: a matrix of type 1000", "hipblasLtMatmulDescSetAttribute: attribute 2",
                 "hipblasLtMatmulDescCreate: scale type 1"):  # fmt: skip
        assert any(f" {name} is not available" in line for line in lines), name


def test_memory_is_mapped_by_another_process():
    command = [sys.executable, "-m", "tests.emulated_machine.hip.sharing"]
    environment = Settings(gpus=2).environment(os.environ)
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=300, check=False)
    assert (done.returncode, done.stdout) == (0, "passed\npassed\n"), done.stdout + done.stderr


C_PROGRAM = """
#include <dlfcn.h>
#include <stdio.h>

int main(int count, char **arguments)
{
    void *hip = dlopen(arguments[1], RTLD_NOW);
    if (!hip)
        return puts(dlerror()), 1;
    int (*devices)(int *) = (int (*)(int *))dlsym(hip, "hipGetDeviceCount");
    int (*allocate)(void **, unsigned long) = (int (*)(void **, unsigned long))dlsym(hip, "hipMalloc");
    int gpus = 0, *memory = 0;
    int status = devices(&gpus) + allocate((void **)&memory, 4096);
    memory[1023] = 7;
    printf("%d GPUs, status %d, %d\\n", gpus, status, memory[1023]);
    return 0;
}
"""


def test_a_program_in_c_finds_the_library_by_name_and_in_rocm_path(tmp_path):
    build.built()
    source, program = tmp_path / "program.c", tmp_path / "program"
    source.write_text(C_PROGRAM)
    subprocess.run([*build.compiler(), str(source), "-ldl", "-o", str(program)], check=True)
    environment = Settings(gpus=3).environment(os.environ)
    in_rocm_path = f"{environment['ROCM_PATH']}/lib/libamdhip64.so"
    for name in ("libamdhip64.so", "libamdhip64.so.6", in_rocm_path):
        done = subprocess.run(
            [str(program), name], env=environment, capture_output=True, text=True, timeout=60, check=False
        )
        assert (done.returncode, done.stdout) == (0, "3 GPUs, status 0, 7\n"), (name, done.stdout + done.stderr)
