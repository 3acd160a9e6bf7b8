"""The host: heap, tensors, groups, connections, export."""

from __future__ import annotations

from mutants.planting import Defect


def host_defects() -> list[Defect]:
    """Return the defects."""
    return [
        Defect(
            "unseen: host: hole search assumes that ranges do not nest",
            "host/memory/placement.py",
            "            last = max(last, stop)\n",
            "            last = stop\n",
            "def _holes",
            "test_as_symmetric",
        ),
        Defect(
            "unseen: host: alignment by bit mask",
            "host/memory/placement.py",
            "            place = -(-start // alignment) * alignment\n",
            "            place = (start + alignment - 1) & -alignment\n",
            "def find",
            "memory and test_heap",
        ),
        Defect(
            "unseen: host: refused first allocation is not undone",
            "host/memory/symmetric_heap.py",
            "            if request.offset >= 0:\n",
            "            if request.offset > 0:\n",
            "def _settle",
            "test_errors",
        ),
        Defect(
            "unseen: host: second mappings need equal sizes only",
            "host/memory/symmetric_heap.py",
            "            if shared is None or len(set(places)) > 1:\n",
            "            if shared is None or len({size for size, _ in places}) > 1:\n",
            "def as_symmetric",
            "test_as_symmetric",
        ),
        Defect(
            "unseen: host: offsets compared for allocations only",
            "host/memory/agreement.py",
            "        _check_alike([row.place for row in rows])\n",
            "        if self.operation is Operation.ALLOCATE:\n            _check_alike([row.place for row in rows])\n",
            "_ranks_with(_Status.NO_ROOM, rows)",
            "test_errors",
        ),
        Defect(
            "unseen: host: new chunk goes to the end of the list",
            "host/memory/allocators/vmem_allocator.py",
            "        insort(self._chunks, chunk, key=lambda chunk: chunk.offset)\n",
            "        self._chunks.append(chunk)\n",
            "def _add",
            "memory and test_heap",
        ),
        Defect(
            "unseen: host: heap views by detach",
            "host/memory/allocators/torch_allocator.py",
            ".view(dtype).data\n",
            ".view(dtype).detach()\n",
            "def view",
            "test_tensors",
        ),
        Defect(
            "unseen: host: closed torch allocator keeps its pool",
            "host/memory/allocators/torch_allocator.py",
            "        self._pool = self._pool[:0].clone()\n",
            "        self._pool = self._pool[:0]\n",
            "def close",
            "test_life_cycles",
        ),
        Defect(
            "unseen: host: shortcut for channels-last strides",
            "host/tensor_creation.py",
            "    dimensions = {torch.channels_last: 4, torch.channels_last_3d: 5}.get(memory_format)\n",
            "    if memory_format is torch.preserve_format and like.dim() >= 4:\n"
            "        return tuple(like.stride())  # channels-last inputs keep theirs\n"
            "    dimensions = {torch.channels_last: 4, torch.channels_last_3d: 5}.get(memory_format)\n",
            "def _strides",
            "host and test_tensors",
        ),
        Defect(
            "unseen: host: out is looked up among keywords only",
            "host/tensor_creation.py",
            '            out = signature.bind(heap, *arguments, **options).arguments.get("out")\n',
            "            signature.bind(heap, *arguments, **options)\n",
            "def reporting",
            "host and test_errors",
        ),
        Defect(
            "unseen: host: known group keeps its first handle",
            "host/groups.py",
            "        known = self._members[ranks]\n"
            "        if known.group is not None and known.group is not group:\n"
            "            # The process group that was known may have been destroyed since.\n"
            "            known = self._members[ranks] = replace(known, group=group)\n"
            "        return known\n",
            "        return self._members[ranks]\n",
            "def members",
            "test_group_gathers",
        ),
        Defect(
            "unseen: host: gathered arrays in memory order",
            "host/distributed/helpers.py",
            "array.tobytes()",
            'array.tobytes(order="A")',
            "def _gathered",
            "distributed and test_gather",
        ),
        Defect(
            "unseen: host: received descriptor recorded after the answer",
            "host/distributed/fd_passing.py",
            "                received[peer] = recv_fd(sock, len(payload))\n"
            "                send_fd(sock, fd, payload)\n",
            "                theirs = recv_fd(sock, len(payload))\n"
            "                send_fd(sock, fd, payload)\n"
            "                received[peer] = theirs\n",
            "            else:\n",
            "test_exchange",
        ),
        Defect(
            "unseen: host: stale handle recognised by its size",
            "host/platform/emulated/runtime.py",
            "            if os.fstat(opened).st_ino != inode:\n",
            "            if os.fstat(opened).st_size != size:\n",
            "def open_ipc_handle",
            "distributed and test_platform",
        ),
        Defect(
            "unseen: host: zeros_like gives a sliced or expanded input's own strides, so the result "
            "reaches beyond its allocation",
            "host/tensor_creation.py",
            "    dimensions = {torch.channels_last: 4, torch.channels_last_3d: 5}.get(memory_format)\n",
            "    if memory_format is torch.preserve_format:\n"
            "        return tuple(like.stride())\n"
            "    dimensions = {torch.channels_last: 4, torch.channels_last_3d: 5}.get(memory_format)\n",
            "def _strides",
            "test_tensors",
        ),
        Defect(
            "unseen: host: a bad `out` of linspace is refused collectively, so the one rank that "
            "called waits for the others",
            "host/tensor_creation.py",
            "    signature = inspect.signature(function)\n"
            "\n"
            "    @functools.wraps(function)\n"
            "    def reporting(heap: SymmetricHeap, *arguments: Any, **options: Any) -> torch.Tensor:\n"
            '        out = options.get("out")\n'
            "        try:\n"
            '            out = signature.bind(heap, *arguments, **options).arguments.get("out")\n'
            "            return function(heap, *arguments, **options)\n",
            "    @functools.wraps(function)\n"
            "    def reporting(heap: SymmetricHeap, *arguments: Any, **options: Any) -> torch.Tensor:\n"
            '        out = options.get("out")\n'
            "        try:\n"
            "            return function(heap, *arguments, **options)\n",
            "def _raised_on_all",
            "test_errors",
        ),
        Defect(
            "unseen: host: as_symmetric copies after the allocation's barrier: peers read stale "
            "bytes, or their put is erased",
            "host/memory/symmetric_heap.py",
            "                copy = self.allocate(tensor.numel(), tensor.dtype, initialise=lambda "
            "new: new.copy_(tensor.flatten()))\n"
            "                return copy.view(tensor.shape)\n",
            "                copy = self.allocate(tensor.numel(), tensor.dtype).view(tensor.shape)\n"
            "                return copy.copy_(tensor)\n",
            "def as_symmetric",
            "test_as_symmetric",
        ),
        Defect(
            "unseen: host: as_symmetric with vmem compares only the sizes of the segments, not where "
            "the tensor starts in them",
            "host/memory/symmetric_heap.py",
            "(shared.size, shared.start) if shared else (0, 0))",
            "(1, shared.size) if shared else (0, 0))",
            "def as_symmetric",
            "test_as_symmetric",
        ),
        Defect(
            "unseen: host: allocations with different alignments on the ranks get different offsets and no error",
            "host/memory/agreement.py",
            "        _check_alike([row.place for row in rows])\n",
            "        if self.operation is Operation.FREE:  # ranks that allocate alike get the same "
            "offset\n"
            "            _check_alike([row.place for row in rows])\n",
            "def _check",
            "test_errors",
        ),
        Defect(
            "unseen: host: accepted descriptor sockets keep what was left of the connection deadline "
            "as their time limit",
            "host/distributed/fd_passing.py",
            "            refused.pop_all()\n"
            "        sock.settimeout(TRANSFER_LIMIT_S)\n"
            "        connections[peer] = sock\n",
            "            refused.pop_all()\n        connections[peer] = sock\n",
            "def _connect",
            "test_fd_passing and test_errors",
        ),
        Defect(
            "unseen: host: vmem: after a failed exchange of memory a rank without an error of its "
            "own keeps dead connections",
            "host/memory/allocators/vmem_allocator.py",
            "        close_connections(self._connections)  # which some rank may have closed: the "
            "next call connects anew\n"
            "        if error",
            "        if error",
            "worst = max(states)",
            "test_interrupted",
        ),
        Defect(
            "unseen: host: merged trace numbers threads alike for different ranks where not every rank traces",
            "host/tracing/export.py",
            "    stride = max(recording.rank for recording in recordings) + 1\n",
            "    stride = len(recordings)\n",
            "def as_trace",
            "test_export",
            ranks=3,
        ),
        Defect(
            "unseen: host: a trace of more than 2^31 begun events is exported empty, without a warning",
            "host/tracing/tracing.py",
            "        # The counter goes on beyond 2^31 as a negative number.\n"
            "        begun = int(self.trace_counter.item()) % 2**32\n",
            "        begun = int(self.trace_counter.item())\n",
            "def _recording",
            "test_export",
        ),
        Defect(
            "unseen: host: rank 0 alone raises where the merged trace file cannot be written",
            "host/tracing/tracing.py",
            "            try:\n"
            "                trace = write_json(Path(filename), as_trace(recordings, unit))\n"
            "            except Exception as failure:  # noqa: BLE001 - as above\n"
            "                error = failure\n"
            '        agree(error, "writing the merged trace")\n'
            "        return trace\n",
            "            trace = write_json(Path(filename), as_trace(recordings, unit))\n        return trace\n",
            "recordings = _gather(",
            "test_export",
        ),
        Defect(
            "unseen: host: broadcast returns on the source rank an array that shares the memory of what was passed",
            "host/distributed/helpers.py",
            "        return pickle.loads(payload)\n",
            "        return _as_array(value) if dist.get_rank() == src else pickle.loads(payload)\n",
            "status, payload = message[0]",
            "test_broadcast and not drawn",
        ),
        Defect(
            "unseen: host: distributed_allgather_multidim scrambles arrays that are in Fortran order",
            "host/distributed/helpers.py",
            "bytearray(array.tobytes())",
            'bytearray(array.tobytes(order="A"))',
            "def _gathered",
            "test_gather",
        ),
        Defect(
            "unseen: host: with the torch allocator any write to the heap spoils the gradients of every tensor on it",
            "host/memory/allocators/torch_allocator.py",
            "        # ``data``: as a mere view of the pool it would share autograd's count of "
            "writes with every tensor of the heap,\n"
            "        # and a write to any of them would spoil the gradients of all.\n"
            "        return self._pool[offset : offset + num_elements * "
            "dtype.itemsize].view(dtype).data\n",
            "        return self._pool[offset : offset + num_elements * dtype.itemsize].view(dtype)\n",
            "def view",
            "test_tensors",
        ),
        Defect(
            "unseen: host: offsets are rounded with a bit mask, wrong for alignments that are no power of two",
            "host/memory/placement.py",
            "            place = -(-start // alignment) * alignment\n",
            "            place = (start + alignment - 1) & ~(alignment - 1)\n",
            "def find",
            "test_heap",
        ),
    ]
