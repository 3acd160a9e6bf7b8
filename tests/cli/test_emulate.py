"""``iris-harness emulate``: unchanged programs on the emulated device, and bad input in one line."""

import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
STARTUP = ROOT / "harness/emulated_machine/startup"

PROGRAM = """
import sys
import torch
import triton
import triton.language as tl

@triton.jit
def increment(x, n, SCALE: tl.constexpr):
    offsets = tl.arange(0, 64)
    tl.store(x + offsets * SCALE, tl.load(x + offsets * SCALE, mask=offsets < n) + 1, mask=offsets < n)

if __name__ == "__main__":
    x = torch.zeros(64, device=triton.runtime.driver.active.get_active_torch_device())
    increment[(1,)](x, int(sys.argv[1]), 1)
    print(triton.runtime.driver.active.get_current_target().arch, int(x.sum()), sys.argv[1:])
    sys.exit(int(x.sum()) % 5)
"""

RACE = """
import torch
import triton
import triton.language as tl

@triton.jit
def everywhere(x):
    tl.store(x + tl.arange(0, 64), tl.program_id(0))

everywhere[(2,)](torch.zeros(64, dtype=torch.int32, device="cuda"))
print("done")
"""


def emulate(*arguments, cwd, **environment):
    return subprocess.run(
        [sys.executable, "-m", "command_line", "emulate", *arguments],
        cwd=cwd,
        env={**os.environ, "PYTHONPATH": str(ROOT), **environment},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "prog.py").write_text(PROGRAM)
    (tmp_path / "race.py").write_text(RACE)
    return tmp_path


def test_an_unchanged_program_runs_and_its_status_is_passed_on(folder):
    done = emulate("--arch", "gfx950", "--", "python", "prog.py", "43", "--mode", "x", cwd=folder)
    assert done.stdout == "gfx950 43 ['43', '--mode', 'x']\n", done.stderr
    assert done.returncode == 3


@pytest.mark.nightly
@pytest.mark.parametrize("mode", ["race", "check", "weak", "weak:7"])
def test_the_program_runs_in_every_mode(folder, mode):
    """In CI, the program that prints the notes of race mode shows that the mode is the one named."""
    done = emulate("--mode", mode, "--", "python", "prog.py", "10", cwd=folder)
    assert (done.returncode, done.stdout) == (0, "gfx942 10 ['10']\n"), done.stderr


@pytest.mark.slow
def test_without_the_command_the_program_finds_no_device(folder):
    done = subprocess.run([sys.executable, "prog.py", "5"], cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "active drivers" in done.stderr


@pytest.mark.slow
def test_the_program_finds_an_amd_gpu_before_its_first_launch(folder):
    (folder / "hip.py").write_text(
        "from triton.backends import backends\n"
        "print(backends['amd'].driver.is_active(), backends['nvidia'].driver.is_active())\n"
    )
    done = emulate("python", "hip.py", cwd=folder)
    assert (done.returncode, done.stdout) == (0, "True False\n"), done.stderr


@pytest.mark.nightly
def test_children_of_the_program_use_the_device(folder):
    """In CI, the ranks of torchrun are such children."""
    (folder / "parent.py").write_text(
        "import subprocess, sys\nsys.exit(subprocess.call([sys.executable, 'prog.py', '10']))\n"
    )
    done = emulate("python", "parent.py", cwd=folder)
    assert (done.returncode, done.stdout) == (0, "gfx942 10 ['10']\n"), done.stderr


@pytest.mark.slow
def test_ranks_of_torchrun_share_a_heap(folder):
    (folder / "ranks.py").write_text(
        textwrap.dedent("""
        import torch.distributed as dist
        import triton
        import triton.language as tl
        import iris_under_test as iris

        @triton.jit
        def send(x, rank, peer, bases):
            iris.put(x, x + 1, rank, peer, bases)

        dist.init_process_group("gloo")
        ctx = iris.iris(1 << 20)
        rank, peer = ctx.get_rank(), 1 - ctx.get_rank()
        x = ctx.zeros(2, dtype=__import__("torch").int32)
        x[0] = rank + 5
        ctx.barrier()
        send[(1,)](x, rank, peer, ctx.get_heap_bases())
        ctx.barrier()
        assert x.tolist() == [rank + 5, peer + 5], x
        dist.destroy_process_group()
        """)
    )
    torchrun = folder / "torchrun"  # as pip installs it: not every environment of the tests has it in PATH
    torchrun.write_text(f"#!{sys.executable}\nfrom torch.distributed.run import main\nmain()\n")
    torchrun.chmod(0o755)
    path = f"{os.environ['PATH']}{os.pathsep}{folder}"
    done = emulate("--", "torchrun", "--standalone", "--nproc-per-node", "2", "ranks.py", cwd=folder, PATH=path)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.nightly
def test_a_mode_checks_a_program_that_does_not_name_one(folder):
    done = emulate("--mode", "race:3", "python", "race.py", cwd=folder)
    assert done.returncode == 1
    assert "DataRace" in done.stderr
    assert emulate("python", "race.py", cwd=folder).stdout == "done\n"


@pytest.mark.slow
def test_notes_of_race_mode_are_printed_when_the_program_ends(folder):
    (folder / "note.py").write_text(
        "from triton.runtime import driver\ndriver.active.watch.unspecified.append('an order that no manual states')\n"
    )
    done = emulate("--mode", "race", "python", "note.py", cwd=folder)
    lines = [line for line in done.stderr.splitlines() if not line.startswith("iris-harness: compiling")]
    assert (done.returncode, lines) == (0, ["note: an order that no manual states"])


@pytest.mark.nightly
def test_a_program_that_activates_the_device_itself_is_checked_too(folder):
    (folder / "race.py").write_text(f"from harness import emulator\nemulator.activate('gfx950')\n{RACE}")
    done = emulate("--mode", "race", "python", "race.py", cwd=folder)
    assert done.returncode == 1
    assert "DataRace" in done.stderr
    assert "the program activates gfx950: its kernels are compiled for gfx950" in done.stderr


def test_a_module_named_harness_of_the_program_is_an_error_that_names_both(folder):
    own = folder / "harness"
    own.mkdir()
    (own / "__init__.py").write_text("VALUE = 1\n")
    (folder / "tools").mkdir()
    (folder / "tools" / "prog.py").write_text("print('ran')\n")
    for command in (["prog.py", "1"], ["-c", "pass"], ["-X", "utf8", "-m", "prog"]):
        done = emulate("python", *command, cwd=folder)
        assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1), done.stderr
        assert f"{own / '__init__.py'} and the emulated machine's {ROOT / 'harness/__init__.py'}" in done.stderr
    done = emulate("python", "tools/prog.py", cwd=folder)
    assert (done.returncode, done.stdout) == (0, "ran\n"), done.stderr


@pytest.mark.nightly
def test_a_compiler_that_fails_is_one_message(folder):
    """The emulated GPUs of torch are compiled once, at the first import of torch."""
    for compiler, wanted in (("false", "false cannot compile the"), ("/none/g++", "/none/g++ cannot be run: No such")):
        done = emulate("python", "-c", "import torch", cwd=folder, CXX=compiler, XDG_CACHE_HOME=str(folder / "cache"))
        assert (done.returncode, done.stdout) == (2, ""), done.stderr
        assert "Traceback" not in done.stderr and wanted in done.stderr and "set CXX" in done.stderr


def test_a_start_that_fails_ends_the_process(folder):
    """Without that the program would run on, and see no GPU."""
    (folder / "selectors.py").write_text("raise OSError('a module of the standard library\\nis hidden')\n")
    (folder / "prog.py").write_text("print('ran')\n")
    variables = {"IRIS_HARNESS_EMULATE": "gfx942 fast 8", "PYTHONPATH": f"{STARTUP}{os.pathsep}{folder}"}
    done = subprocess.run(
        [sys.executable, "prog.py"],
        cwd=folder,
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        check=False,
    )
    expected = "iris-harness emulate: a module of the standard library is hidden\n"
    assert (done.returncode, done.stdout, done.stderr) == (2, "", expected)


@pytest.mark.slow
def test_a_program_that_wants_a_gpu_is_told_what_to_do(folder):
    (folder / "gpu.py").write_text("import torch\nraise AssertionError('Torch not compiled with CUDA enabled')\n")
    done = emulate("python", "gpu.py", cwd=folder)
    assert done.returncode == 1
    assert "the emulated device runs kernels on CPU tensors" in done.stderr.splitlines()[-1]


def test_the_sitecustomize_of_the_environment_still_runs(folder):
    own = folder / "own"
    own.mkdir()
    (own / "sitecustomize.py").write_text("print('mine')\n")
    (folder / "path.py").write_text(
        "import sys, sitecustomize\nprint(sitecustomize.__file__, 'triton' in sys.modules)\n"
    )
    done = emulate("python", "path.py", cwd=folder, PYTHONPATH=f"{ROOT}{os.pathsep}{own}")
    assert done.stdout == f"mine\nmine\n{own / 'sitecustomize.py'} False\n", done.stderr  # iris-harness itself, too


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "no program: write it after --"),
        (["--"], "no program: write it after --"),
        (["--arch", "gfx90a", "--", "python"], "--arch: expected gfx942 or gfx950, got 'gfx90a'"),
        (["--gpus", "9", "--", "python"], "--gpus: expected a number from 1 to 8, got 9"),
        (["--gpus", "four", "--", "python"], "--gpus: expected a number from 1 to 8, got 'four'"),
        (["--mode", "slow", "--", "python"], "--mode: expected fast, check, race, weak or weak:SEED, got 'slow'"),
        (["--mode", "trace", "--", "python"], "--mode: expected fast"),
        (["--mode", "weak:x", "--", "python"], "weak:x"),
        (["--mode", "fast:1", "--", "python"], "fast"),
        (["--", "no-such-program"], "no program 'no-such-program'"),
        (["--", "./prog.py"], "and not in PATH; for a Python file write -- python ./prog.py"),
        (["--cores", "3", "--", "python"], "--cores"),
    ],
)
def test_bad_input_is_one_line_and_status_2(folder, arguments, message):
    done = emulate(*arguments, cwd=folder)
    assert (done.returncode, done.stdout) == (2, "")
    assert message in done.stderr
    assert done.stderr.count("\n") == 1


def test_a_script_that_is_not_there_is_one_line_and_status_2(folder):
    done = emulate("--", "python", "nowhere.py", cwd=folder)
    assert (done.returncode, done.stdout) == (2, "")
    assert "nowhere.py" in done.stderr
    assert done.stderr.count("\n") == 1


def test_an_interrupt_leaves_no_process(folder):
    (folder / "wait.py").write_text(
        "import os, subprocess, sys, time\n"
        "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])\n"
        "print(child.pid, flush=True)\ntime.sleep(600)\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-m", "command_line", "emulate", "--", "python", "wait.py"],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    child = int(process.stdout.readline())
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does
    process.communicate(timeout=60)
    assert process.returncode == -signal.SIGINT
    for _ in range(600):
        stat = Path(f"/proc/{child}/stat")
        if not stat.exists() or stat.read_text().split()[2] == "Z":
            break
        time.sleep(0.1)
    else:
        os.kill(child, signal.SIGKILL)
        pytest.fail(f"process {child} outlives the interrupt")
