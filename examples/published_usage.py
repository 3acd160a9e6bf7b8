"""The first program of the published Gluon overview: rank 1's value is loaded and stored into rank 0's heap.

    torchrun --standalone --nproc_per_node=2 examples/published_usage.py

As printed there, but for imports. What the overview leaves to its reader stands between ``# added`` and ``# as
printed``: the process group and the device (a GPU per rank, or the emulated one), a launch, a check. Exit status 1 if
the value did not arrive.
"""

import datetime

import torch
import torch.distributed as dist
from triton.experimental import gluon
from triton.experimental.gluon import language as gl

import iris_under_test.experimental.iris_gluon as iris_gl
from harness import emulator

# added
on_gpu = torch.cuda.is_available()
if not on_gpu:
    emulator.activate()
dist.init_process_group("nccl" if on_gpu else "gloo", timeout=datetime.timedelta(seconds=60))
# as printed

# Host-side: Initialize Iris Gluon context
ctx = iris_gl.iris(heap_size=2**30)  # 1GB heap
context_tensor = ctx.get_device_context()


# Device-side: Use in Gluon kernels
@gluon.jit
def kernel(IrisDeviceCtx: gl.constexpr, context_tensor, buffer):
    # Initialize device context from tensor
    ctx = IrisDeviceCtx.initialize(context_tensor)

    # Perform remote memory operations
    data = ctx.load(buffer, from_rank=1)
    ctx.store(buffer, data, to_rank=0)


# added
buffer = ctx.full((1,), 42.0 + ctx.get_rank(), dtype=torch.float32)
ctx.barrier()
if ctx.get_rank() == 0:
    kernel[(1,)](iris_gl.IrisDeviceCtx, context_tensor, buffer, num_warps=1)
ctx.barrier()
ctx.info(f"buffer holds {buffer.item()}")
right = buffer.item() == 43.0
dist.destroy_process_group()
raise SystemExit(0 if right else 1)
