"""A rank of a torchrun program over nccl and symmetric memory; test_distributed starts it."""

import os
import re

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
    operators_of_symmetric_memory(rank, device)
    dist.destroy_process_group()


def operators_of_symmetric_memory(rank, device):
    world, operators = dist.group.WORLD.group_name, torch.ops.symm_mem
    usual = symm_mem.get_signal_pad_size()
    symm_mem.set_signal_pad_size(3 * usual)
    large = symm_mem.rendezvous(  # the handle alone keeps the memory
        symm_mem.empty(5, device=device), dist.group.WORLD
    )
    symm_mem.set_signal_pad_size(usual)
    pad = large.get_signal_pad(1 - rank)
    assert (large.signal_pad_size, pad.nbytes) == (3 * usual, 3 * usual)
    pad[-1] = 9
    large.barrier(channel=pad.numel() // 2 - 2)
    assert large.get_signal_pad(rank)[-1].item() == 9

    symmetric = symm_mem.empty(2, 4, dtype=torch.int32, device=device)
    given = torch.arange(8, dtype=torch.int32, device=device).view(2, 4) * (rank + 1)
    total = (3 * torch.arange(8, dtype=torch.int32)).view(2, 4)
    out = torch.empty_like(given)
    symmetric.copy_(given)
    operators.one_shot_all_reduce_out(symmetric, "sum", world, out)
    assert torch.equal(out.cpu(), total)
    operators.two_shot_all_reduce_out(symmetric, "sum", world, out.zero_())
    assert torch.equal(out.cpu(), total) and torch.equal(symmetric, given)
    assert torch.equal(operators.one_shot_all_reduce_copy(symmetric, given[0], "sum", world).cpu(), total[0])
    symmetric.copy_(given)
    for last, mine in ((False, total[rank]), (True, total[:, 2 * rank : 2 * rank + 2])):
        part = operators.reduce_scatter_out(symmetric, world, last, torch.empty_like(mine.to(device)))
        assert torch.equal(part.cpu(), mine)
    gathered = operators._low_contention_all_gather(given.contiguous(), world)
    assert torch.equal(torch.ops._c10d_functional.wait_tensor(gathered).cpu(), torch.cat([total // 3, total // 3 * 2]))
    operators.memset32_(symmetric, 1, (1 << 32) - 1, 3)
    operators.stream_write_value32_(symmetric, 7, 5)
    assert symmetric.view(-1).tolist() == [given[0, 0].item(), -1, -1, -1, *given.view(-1)[4:7].tolist(), 5]
    for refused, match in (
        (lambda: operators.memset32_(symmetric, 7, 0, 2), "expected 2 elements of 4 bytes from element 7"),
        (lambda: operators.one_shot_all_reduce(given, "sum", world), "input must be symmetric memory: make it"),
        (lambda: operators.nvshmem_put(symmetric, 0), "symm_mem.nvshmem_put is not available .* lists what is"),
        (lambda: operators.multimem_all_reduce_(symmetric, "sum", world), "symm_mem.multimem_all_reduce_ is not"),
    ):
        try:
            refused()
        except (RuntimeError, NotImplementedError) as error:
            text = str(error)
        else:
            text = "no error"
        assert re.search(match, text), f"expected {match}, got {text}"


if __name__ == "__main__":
    main()
