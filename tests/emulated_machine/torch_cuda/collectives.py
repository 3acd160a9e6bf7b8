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
    optimizer = torch.optim.SGD(model.parameters(), 0.125)
    start = model.module.weight.detach().cpu().clone()
    for step in range(1, 4):  # after the first step torch rebuilds the buckets of gradients
        optimizer.zero_grad()
        model(torch.full((4, 3), float(rank), device=device)).sum().backward()
        assert torch.equal(model.module.weight.grad.cpu(), torch.full((2, 3), 2.0))
        optimizer.step()
        torch.testing.assert_close(model.module.weight.detach().cpu(), start - 0.25 * step)
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
    refused_by_nccl(rank, device)
    coalesced(rank, device)
    splits(rank, device)
    store = dist.PrefixStore("both", dist.distributed_c10d._get_default_store())
    dist.destroy_process_group()
    dist.init_process_group("cpu:gloo,cuda:nccl", store=store, rank=rank, world_size=2)
    for place in ("cpu", device):
        x = torch.full((3,), rank + 1, device=place)
        dist.all_reduce(x)
        assert x.tolist() == [3, 3, 3], x
    dist.all_reduce(x := torch.tensor([rank + 1]), dist.ReduceOp.BOR)
    assert x.item() == 3, x
    dist.all_gather_object(objects, {"rank": 2 * rank})
    assert objects == [{"rank": 0}, {"rank": 2}]
    dist.barrier()
    dist.destroy_process_group()


def check_refusals(calls):
    for refused, kind, match in calls:
        try:
            refused()
        except kind as error:
            text = str(error)
        else:
            text = "no error"
        assert re.search(match, text), f"expected {match}, got {text}"


def refused_by_nccl(rank, device):
    host, on, other = torch.ones(2), torch.ones(2, device=device), torch.ones(2, device=f"cuda:{1 - rank}")
    wide, whole = torch.ones(4, device=device), torch.ones(2, dtype=torch.int32, device=device)
    across = torch.ones(4, 2, device=device).t()
    cpu = (
        lambda: dist.all_reduce(host),
        lambda: dist.reduce(host, 0),
        lambda: dist.broadcast(host, 0),
        lambda: dist.all_gather([host, host], host),
        lambda: dist.all_gather_into_tensor(torch.ones(4), host),
        lambda: dist.reduce_scatter(host, [host, host]),
        lambda: dist.reduce_scatter_tensor(host, torch.ones(4)),
        lambda: dist.gather(host, [host, host] if rank == 0 else None),
        lambda: dist.scatter(host, [host, host] if rank == 0 else None),
        lambda: dist.all_to_all([host, host], [host, host]),
        lambda: dist.all_to_all_single(host, host.clone()),
        lambda: dist.all_reduce_coalesced([host]),
        lambda: dist.send(host, 1 - rank),
        lambda: dist.recv(host, 1 - rank),
        lambda: dist.batch_isend_irecv([dist.P2POp(dist.isend, host, 1 - rank)]),
    )
    names, operations = ("BAND", "BOR", "BXOR"), (dist.ReduceOp.BAND, dist.ReduceOp.BOR, dist.ReduceOp.BXOR)
    same = "output tensor must have the same type as input tensor"
    check_refusals(
        [
            *((call, RuntimeError, "^No backend type associated with device type cpu") for call in cpu),
            *(
                (lambda op=op: dist.all_reduce(whole, op), ValueError, f"^Cannot use ReduceOp.{name} with NCCL$")
                for name, op in zip(names, operations, strict=True)
            ),
            (lambda: dist.reduce(whole, 0, dist.ReduceOp.BOR), ValueError, "^Cannot use ReduceOp.BOR with NCCL$"),
            (lambda: dist.reduce_scatter(whole, [whole, whole], dist.ReduceOp.BXOR), ValueError, "ReduceOp.BXOR with"),
            (lambda: dist.all_reduce(across), ValueError, "^Tensors must be contiguous$"),
            (lambda: dist.broadcast(across, 0), ValueError, "^Tensors must be contiguous$"),
            (lambda: dist.all_gather_into_tensor(across, wide), ValueError, "^Tensors must be contiguous$"),
            (lambda: dist.all_gather_into_tensor(wide, whole), TypeError, same),
            (lambda: dist.reduce_scatter_tensor(whole, wide), TypeError, "input tensor must be the same type as the"),
            (lambda: dist.distributed_c10d._get_default_group().alltoall_base(whole, on, [], []), TypeError, same),
            (
                lambda: dist.all_reduce(other),
                dist.DistBackendError,
                f"passed to init_process_group: the tensor is on cuda:{1 - rank}, device_id is cuda:{rank}$",
            ),
        ]
    )
    picture = torch.full((2, 3, 4, 4), rank + 1.0, device=device).to(memory_format=torch.channels_last)
    dist.all_reduce(picture)  # NCCL accepts torch's memory formats
    assert (picture == 3).all()
    dist.barrier()


def coalesced(rank, device):
    for given in (None, device):
        a, b = torch.full((2,), rank + 1.0, device=device), torch.full((3,), 10.0 * rank, device=device)
        with dist._coalescing_manager(device=given, async_ops=True) as manager:
            dist.all_reduce(a)
            dist.all_reduce(b)
        assert len(manager.works) == 1
        manager.wait()
        assert a.tolist() == [3, 3] and b.tolist() == [10, 10, 10], (a, b)
    received = torch.empty(2, device=device)
    with dist._coalescing_manager(device=device):  # in this order, each send alone waits for the other's receive
        dist.send(a + rank, 1 - rank)
        dist.recv(received, 1 - rank)
        dist.broadcast(b.fill_(rank), 1)
    assert received.tolist() == [4 - rank] * 2 and b.tolist() == [1, 1, 1], (received, b)
    work = dist.all_reduce(a, async_op=True)
    assert work.wait() and a.tolist() == [6, 6]


def splits(rank, device):
    both = dist.split_group(split_ranks=[[0, 1]])
    assert (both.size(), both.rank(), dist.get_process_group_ranks(both)) == (2, rank, [0, 1])
    x = torch.full((2,), rank + 1, device=device)
    dist.all_reduce(x, group=both)
    assert x.tolist() == [3, 3]
    own = dist.split_group(both, [[0], [1]])
    assert (own.size(), own.rank(), dist.get_global_rank(own, 0)) == (1, 0, rank)
    dist.all_reduce(x, group=own)
    assert x.tolist() == [3, 3]
    first = dist.split_group(split_ranks=[[0]])
    assert (first is None) == (rank == 1)
    mesh = torch.distributed.init_device_mesh("cuda", (2, 1), mesh_dim_names=("rows", "columns"))
    dist.all_reduce(x, group=mesh.get_group("rows"))
    assert x.tolist() == [6, 6]
    for group in (own, both, *([first] if first else [])):
        dist.destroy_process_group(group)


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
        (lambda: operators.one_shot_all_reduce(symmetric, "prod", world), "must be 'sum' or 'avg', got 'prod'"),
        (lambda: operators.memset32_(symmetric, 7, 0, 2), "expected 2 elements of 4 bytes from element 7"),
        (lambda: operators.one_shot_all_reduce(given, "sum", world), "input must be symmetric memory: make it"),
        (lambda: operators.nvshmem_put(symmetric, 0), "symm_mem.nvshmem_put is not available .* lists what is"),
        (lambda: operators.multimem_all_reduce_(symmetric, "sum", world), "symm_mem.multimem_all_reduce_ is not"),
    ):
        try:
            refused()
        except (RuntimeError, ValueError, NotImplementedError) as error:
            text = str(error)
        else:
            text = "no error"
        assert re.search(match, text), f"expected {match}, got {text}"


if __name__ == "__main__":
    main()
