"""A rank of a torchrun program over nccl and symmetric memory; test_distributed starts it."""

import os

import torch
import torch.distributed as dist
import torch.distributed._symmetric_memory as symm_mem

from harness.emulated_machine import torch_cuda


def main():
    torch_cuda.install("gfx942", 2)
    rank = int(os.environ["RANK"])
    torch.cuda.set_device(rank)
    device = torch.device("cuda", rank)
    dist.init_process_group("nccl", device_id=device)
    for dtype in (torch.float32, torch.bfloat16, torch.float16, torch.int64):
        x = torch.full((3,), rank + 1, device=device, dtype=dtype)
        work = dist.all_reduce(x, async_op=True)
        work.wait()
        assert x.tolist() == [3, 3, 3], x
    gathered = torch.empty(4, device=device)
    dist.all_gather_into_tensor(gathered, torch.full((2,), float(rank), device=device))
    assert gathered.tolist() == [0, 0, 1, 1], gathered
    part = torch.empty(2, device=device)
    dist.reduce_scatter_tensor(part, torch.arange(4.0, device=device), op=dist.ReduceOp.AVG)
    assert part.tolist() == [2 * rank, 2 * rank + 1], part
    received = torch.empty(2, device=device)
    dist.all_to_all_single(received, torch.arange(2.0, device=device) + 10 * rank)
    assert received.tolist() == [rank, 10 + rank], received
    peer = torch.empty(1, device=device)
    operations = [dist.P2POp(dist.isend, torch.full((1,), float(rank), device=device), 1 - rank)]
    for work in dist.batch_isend_irecv([*operations, dist.P2POp(dist.irecv, peer, 1 - rank)]):
        work.wait()
    assert peer.item() == 1 - rank
    objects = [None, None]
    group = dist.new_group([0, 1])
    dist.all_gather_object(objects, {"rank": rank}, group=group)
    assert objects == [{"rank": 0}, {"rank": 1}]
    dist.destroy_process_group(group)
    torch.manual_seed(0)
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(3, 2).to(device), device_ids=[rank])
    model(torch.full((4, 3), float(rank), device=device)).sum().backward()
    assert torch.equal(model.module.weight.grad.cpu(), torch.full((2, 3), 2.0))
    heap = symm_mem.empty(8, device=device).fill_(rank)
    handle = symm_mem.rendezvous(heap, dist.group.WORLD)
    handle.barrier()
    remote = handle.get_buffer(1 - rank, (8,), torch.float32)
    assert remote.tolist() == [1 - rank] * 8
    handle.barrier()
    remote.fill_(7)
    handle.barrier()
    assert heap.tolist() == [7] * 8
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
