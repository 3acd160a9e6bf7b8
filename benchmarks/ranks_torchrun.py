"""A bare torchrun program: join, pass one barrier, report the time. Run by ``ranks.py``."""

import time

import torch.distributed as dist

dist.init_process_group("gloo")
dist.barrier()
print(f"{time.time()}\n", end="", flush=True)
dist.destroy_process_group()
