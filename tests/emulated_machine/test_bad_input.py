"""Programs that call what the emulated machine lacks, or call it with nonsense: an error that names the call and the
page, and never a crash of the interpreter; programs that are killed leave nothing behind."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from harness.emulated_machine import Settings
from harness.emulated_machine.hip.calls import PAGE as HIP_PAGE
from harness.emulated_machine.torch_cuda.support import PAGE as TORCH_PAGE

ROOT = Path(__file__).resolve().parents[2]
REFUSED_BY_HIP = [
    "hipModuleLoadData", "hipModuleLaunchKernel", "hipLaunchKernel", "hipGraphCreate", "hipStreamBeginCapture",
    "hipDeviceReset", "hipMemcpy3D", "hipMemPoolCreate", "hipIpcGetEventHandle", "hipFuncGetAttributes",
    "hipLaunchCooperativeKernel", "hipStreamWriteValue32", "hipCtxCreate", "hipMallocArray",
]  # fmt: skip

REFUSED_BY_TORCH = {
    "torch.cuda.FloatTensor": "torch.cuda.FloatTensor(3)",
    "torch.cuda.MemPool": "torch.cuda.MemPool()",
    "torch.cuda.CUDAPluggableAllocator": "torch.cuda.memory.CUDAPluggableAllocator('x.so', 'a', 'b')",
    "torch.cuda.change_current_allocator": "torch.cuda.memory.change_current_allocator(None)",
    "torch.cuda.caching_allocator_enable": "torch.cuda.caching_allocator_enable(False)",
    "torch.cuda.host_memory_stats": "torch.cuda.host_memory_stats()",
    "torch.cuda.jiterator": "torch.cuda.jiterator._create_jit_fn('')",
    "torch.cuda.profiler.start": "torch.cuda.profiler.start()",
    "torch.cuda.tunable.enable": "torch.cuda.tunable.enable(True)",
    "torch.cuda.Event.ipc_handle": "torch.cuda.Event(interprocess=True).ipc_handle()",
    "torch.nn.DataParallel": "torch.nn.DataParallel(torch.nn.Linear(4, 4).cuda(), [0, 1])(x)",
    "torch.cuda.nccl.all_reduce": "torch.cuda.nccl.all_reduce([x, x.to('cuda:1')])",
    "torch.cuda.memory._record_memory_history": "torch.cuda.memory._record_memory_history()",
    "aten::_to_sparse": "x.to_sparse()",
    "aten::quantize_per_tensor": "torch.quantize_per_tensor(x, 1.0, 0, torch.qint8)",
    "aten::_thnn_fused_lstm_cell": "torch.nn.LSTM(4, 4).to(x.device)(x)",
    "aten::cudnn_convolution": "torch.cudnn_convolution(x[None, None], x[None, None],"
    " [0, 0], [1, 1], [1, 1], 1, False, False, False)",
    "aten::_scaled_dot_product_flash_attention": "torch.ops.aten._scaled_dot_product_flash_attention("
    "x[None, None].half(), x[None, None].half(), x[None, None].half())",
}
"""What the message names -> the expression."""

WRONG_ARGUMENTS = {
    "torch.cuda.set_device(99)": "cuda:99 was requested, the emulated machine has 2 GPUs",
    "torch.ones(3, device='cuda:99')": "cuda:99 was requested, the emulated machine has 2 GPUs",
    "torch.empty(-3, device='cuda')": "negative dimension",
    "torch.empty(1 << 50, device='cuda')": "HIP out of memory",
    "x + torch.ones(4, 4)": "Expected all tensors to be on the same device",
    "x.numpy()": "can't convert cuda:0 device type tensor to numpy",
    "x[torch.tensor([99], device='cuda')]": "out of bounds",
    "torch.cuda.get_device_properties(99)": "Invalid device id",
    "torch.cuda.caching_allocator_delete(12345)": "no allocation starts at 12345",
    "torch.cuda.CUDAGraph().replay()": "without a preceding successful capture",
    "torch.cuda.CUDAGraph().capture_end()": "no graph is being captured",
    "torch.cuda.set_rng_state(torch.zeros(3, dtype=torch.uint8))": "RNG state",
}
"""Expression -> a part of the message."""


def run(*command: str, gpus: int = 2) -> subprocess.CompletedProcess[str]:
    environment = Settings(gpus=gpus).environment(os.environ)
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=300, check=False)


@pytest.mark.parametrize("seed", ["1", "2"])
def test_hip_survives_nonsense(seed: str) -> None:
    done = run(sys.executable, "-m", "tests.emulated_machine.hip.nonsense", seed)
    last = done.stdout.splitlines()[-1:]
    assert (done.returncode, last) == (0, ["passed"]), f"{last} {done.stderr}"


def test_a_call_that_hip_lacks_is_named_with_the_page() -> None:
    code = f"""
import ctypes
hip = ctypes.CDLL("libamdhip64.so")
for name in {REFUSED_BY_HIP}:
    assert getattr(hip, name)(None, None, None) == 801, name
try:
    hip.hipNoSuchCall
except AttributeError as problem:
    print(problem)
"""
    done = run(sys.executable, "-c", code)
    assert done.returncode == 0, done.stderr
    assert "hipNoSuchCall" in done.stdout
    lines = done.stderr.splitlines()
    assert len(lines) == len(REFUSED_BY_HIP)
    for name, line in zip(REFUSED_BY_HIP, lines, strict=True):
        assert name in line and HIP_PAGE in line


@pytest.mark.slow
def test_a_call_that_torch_lacks_is_named_with_the_page() -> None:
    code = f"""
import torch, warnings
warnings.simplefilter("ignore")
x = torch.ones(4, 4, device="cuda")
for expression in {[*REFUSED_BY_TORCH.values(), *WRONG_ARGUMENTS]}:
    try:
        eval(expression)
    except Exception as problem:
        print(type(problem).__name__, str(problem).replace("\\n", " "))
    else:
        print("nothing was raised")
assert x.sum().item() == 16
"""
    done = run(sys.executable, "-c", code)
    assert done.returncode == 0, done.stdout + done.stderr
    lines = done.stdout.splitlines()
    assert len(lines) == len(REFUSED_BY_TORCH) + len(WRONG_ARGUMENTS), done.stdout
    for name, line in zip(REFUSED_BY_TORCH, lines, strict=False):
        assert line.startswith("NotImplementedError ") and name in line and TORCH_PAGE in line, line
    for message, line in zip(WRONG_ARGUMENTS.values(), lines[len(REFUSED_BY_TORCH) :], strict=True):
        assert message in line, line


AS_ON_A_GPU = """
import os, sys, warnings
import torch
if not int(sys.argv[1]):
    assert (torch.cuda.is_available(), torch.cuda.device_count()) == (False, 0) and torch.ones(2).sum() == 2
try:
    x = torch.ones(2, device="cuda")
except RuntimeError as problem:
    print(problem)
    sys.exit()
try:
    torch.compile(lambda y: y + 1)(x)
except Exception as problem:
    print(problem)
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    activities = [torch.profiler.ProfilerActivity.CPU, torch.profiler.ProfilerActivity.CUDA]
    with torch.profiler.profile(activities=activities) as profile:
        x + 1
print(*{str(each.message) for each in caught})
assert any(event.key == "aten::add" for event in profile.key_averages())
assert torch.accelerator.memory_allocated() == torch.cuda.memory_allocated() > 0
sys.stdout.flush()
if not os.fork():
    try:
        torch.ones(2, device="cuda")
    except RuntimeError as problem:
        print(problem, flush=True)
    os._exit(0)
os.wait()
"""


@pytest.mark.nightly
def test_what_a_gpu_refuses_and_what_the_machine_lacks_is_said_once() -> None:
    done = run(sys.executable, "-c", AS_ON_A_GPU, "1")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "torch.compile with the backend inductor is not available" in done.stdout, done.stdout
    assert "the profiler records operators only" in done.stdout, done.stdout
    assert "Cannot re-initialize CUDA in forked subprocess" in done.stdout, done.stdout
    assert "Failed to record" not in done.stderr, done.stderr


@pytest.mark.parametrize("hidden", ["CUDA_VISIBLE_DEVICES=", "HIP_VISIBLE_DEVICES=-1"])
def test_a_program_that_sees_no_gpu_starts(hidden: str) -> None:
    done = run("env", hidden, sys.executable, "-c", AS_ON_A_GPU, "0")
    assert (done.returncode, done.stdout) == (0, "No HIP GPUs are available\n"), done.stderr


@pytest.mark.nightly
def test_memory_that_the_machine_lacks_is_an_error_before_anything_reads_it() -> None:
    done = run(sys.executable, "-m", "tests.emulated_machine.wild_memory")
    assert done.returncode == 0 and done.stdout.endswith("passed\n"), done.stdout + done.stderr


@pytest.mark.nightly
def test_a_package_without_the_api_is_one_line() -> None:
    done = run(sys.executable, "-m", "command_line", "certify", "--implementation", "json", "--device", "rocm")
    assert done.returncode == 2, done.stdout + done.stderr
    [line] = done.stderr.splitlines()
    assert "json.iris" in line


HOLDS_MEMORY = """
import ctypes, os, subprocess, sys, time
hip, pointer = ctypes.CDLL("libamdhip64.so"), ctypes.c_void_p()
assert hip.hipMalloc(ctypes.byref(pointer), ctypes.c_size_t(1 << 20)) == 0
class Handle(ctypes.Structure):
    _fields_ = [("bytes", ctypes.c_char * 64)]
assert hip.hipIpcGetMemHandle(ctypes.byref(Handle()), pointer) == 0
print("ready", flush=True)
time.sleep(300)
"""


@pytest.mark.parametrize("ended_by", [signal.SIGKILL, signal.SIGINT, signal.SIGTERM])
def test_two_programs_at_once_leave_nothing_when_they_are_ended(ended_by: signal.Signals, tmp_path: Path) -> None:
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    environment = {**Settings(gpus=2).environment(os.environ), "TMPDIR": str(temporary)}
    before = set(os.listdir("/dev/shm"))
    programs = [
        subprocess.Popen(
            [sys.executable, "-m", "command_line", "emulate", "--gpus", "2", "--", sys.executable, "-c", HOLDS_MEMORY],
            cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
            start_new_session=True,
        )
        for _ in range(2)
    ]  # fmt: skip
    try:
        for program in programs:
            assert program.stdout is not None and program.stdout.readline() == "ready\n"
        held = {name for name in set(os.listdir("/dev/shm")) - before if "hip" in name}
        for program in programs:
            program.send_signal(ended_by)
        for program in programs:
            assert program.wait(timeout=60) != 0
    finally:
        for program in programs:
            program.kill()
            program.communicate()
    assert not held & set(os.listdir("/dev/shm"))
    assert list(temporary.iterdir()) == []
    deadline = time.monotonic() + 10
    while any(map(_alive, programs)) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not any(map(_alive, programs))


ONE_RANK_IS_KILLED = """
import os, signal, torch, torch.distributed as dist
dist.init_process_group("nccl")
torch.cuda.set_device(dist.get_rank())
x = torch.ones(1 << 20, device="cuda")
dist.all_reduce(x)
torch.cuda.synchronize()
if dist.get_rank() == 1:
    print("ready", flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
dist.all_reduce(x)
torch.cuda.synchronize()
"""


@pytest.mark.slow
def test_a_killed_rank_ends_its_group_and_leaves_nothing(tmp_path: Path) -> None:
    temporary, program = tmp_path / "tmp", tmp_path / "program.py"
    temporary.mkdir()
    program.write_text(ONE_RANK_IS_KILLED)
    before = set(os.listdir("/dev/shm"))
    command = ["emulate", "--gpus", "2", "--", sys.executable, "-m", "torch.distributed.run", "--standalone"]
    started = subprocess.Popen(
        [sys.executable, "-m", "command_line", *command, "--nproc-per-node", "2", str(program)],
        cwd=ROOT, env={**os.environ, "TMPDIR": str(temporary)}, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        text=True, start_new_session=True,
    )  # fmt: skip
    try:
        out, err = started.communicate(timeout=240)
    finally:
        started.kill()
    assert "ready" in out and started.returncode == 1 and "SIGKILL" in err, out + err
    assert not {name for name in set(os.listdir("/dev/shm")) - before if "hip" in name}
    assert [path for path in temporary.iterdir() if "torchelastic" not in path.name] == []
    assert not _alive(started)


def _alive(program: "subprocess.Popen[str]") -> bool:
    """Return whether a process of the program's session is left."""
    try:
        os.killpg(program.pid, 0)
    except ProcessLookupError:
        return False
    return True
