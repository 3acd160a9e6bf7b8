"""The kernels of collectives, messages and fused products."""

from __future__ import annotations

from mutants.planting import Defect


def kernel_defects() -> list[Defect]:
    """Return the defects."""
    return [
        Defect(
            "unseen: kernels: a fused product steps through K by a 32-bit product of BLOCK_K and the stride",
            "kernels/matmul.py",
            "    block = tl.full((), BLOCK_K, tl.int64)\n    a_step, b_step = block * a.stride_n, block * b.stride_m\n",
            "    a_step, b_step = BLOCK_K * a.stride_n, BLOCK_K * b.stride_m\n",
            "def add_product",
            "test_far and matmul_all_reduce",
        ),
        Defect(
            "unseen: kernels: the last step of K masks only B, as '0 times anything is 0'",
            "kernels/matmul.py",
            "            a_mask = a_mask & (depth[None, :] < K - start)\n"
            "            b_mask = b_mask & (depth[:, None] < K - start)\n",
            "            # Zeros in one operand suffice: what they are multiplied with does not count.\n"
            "            b_mask = b_mask & (depth[:, None] < K - start)\n",
            "def add_product",
            "test_far and matmul_all_reduce",
        ),
        Defect(
            "unseen: kernels: ring passes partial sums of float16/bfloat16 on in the tensor's type, "
            "to halve the bytes on the link",
            "kernels/all_reduce.py",
            "            _send(partial, outbox, sent, count, tiling.lanes, slot_bytes, SIZE)\n"
            "            held = _receive(inbox, came, count, tiling.lanes, slot_bytes, SIZE, "
            "partial.dtype)\n",
            "            # In the tensor's own type: half the bytes on the link.\n"
            "            narrow = partial.to(source.ptr.dtype.element_ty)\n"
            "            _send(narrow, outbox, sent, count, tiling.lanes, slot_bytes, SIZE)\n"
            "            held = widened(_receive(inbox, came, count, tiling.lanes, slot_bytes, SIZE, "
            "narrow.dtype))\n",
            "def ring(",
            "test_accumulating_variants and ring",
            ranks=4,
        ),
        Defect(
            "unseen: kernels: in a second ring a member's place is computed with the ring's stride "
            "instead of its inverse",
            "kernels/all_reduce.py",
            "            place = member * _inverse(number, SIZE) % SIZE\n",
            "            place = member * _stride(number, SIZE) % SIZE\n",
            "def ring(",
            "accumulating and ring",
            ranks=5,
        ),
        Defect(
            "unseen: kernels: the Gluon entry of two_shot_push gives the output the input's strides",
            "kernels/all_reduce_push.py",
            "Matrix(output_ptr, out_m, out_n, 0, ALIGNMENT)",
            "Matrix(output_ptr, in_m, in_n, 0, ALIGNMENT)",
            "def push_gluon",
            "test_far and all_reduce",
        ),
        Defect(
            "unseen: kernels: under 'll' each member reduces the words starting with its own, so "
            "that bits differ between members",
            "kernels/ll.py",
            '            sender = behind(root, other, SIZE) if plan.FROM == "root" else tl.cast(other, tl.int32)\n',
            "            # Starting with the nearest member, as when sending.\n"
            '            near = member if plan.FROM == "all" else root\n'
            '            sender = tl.cast(other, tl.int32) if plan.FROM == "own" else behind(near, '
            "other, SIZE)\n",
            "def give_and_take",
            "test_repeat and all_reduce",
            ranks=3,
        ),
        Defect(
            "unseen: kernels: matmul_all_reduce by 'atomic' adds to other ranks' tiles without "
            "waiting for their previous call",
            "kernels/matmul_reduce.py",
            "        if step == 0:\n            wait(pads, SIZE, program, turn)\n",
            '        if HOW != "atomic":  # atomics need no slot of their own: the tiles they add to '
            "are zero\n"
            "            if step == 0:\n"
            "                wait(pads, SIZE, program, turn)\n",
            "def matmul_and_reduce",
            "test_steps and matmul_all_reduce",
        ),
        Defect(
            "unseen: kernels: a gatherer of all_gather_matmul sets the flag of a unit without completing its stores",
            "kernels/gather_matmul.py",
            "            publish()\n            poke(flags + unit // SIZE * SIZE + shard, call)\n",
            "            # The flag and the data stay on this device, where stores arrive in order.\n"
            "            poke(flags + unit // SIZE * SIZE + shard, call)\n",
            "def gather_and_matmul",
            "test_edges and all_gather_matmul",
        ),
        Defect(
            "unseen: kernels: all_gather_matmul ends before other ranks have finished reading this rank's shard",
            "kernels/gather_matmul.py",
            "        tl.store(words + 2, call + 1)\n"
            "    if program < gatherers:\n"
            "        wait(pads, SIZE, program, turn + 1)  # no member reads my shard any more\n",
            "        tl.store(words + 2, call + 1)\n",
            "def gather_and_matmul",
            "test_edges and all_gather_matmul",
        ),
        Defect(
            "unseen: kernels: float64 is reduced in float32, as every float",
            "kernels/reductions.py",
            "    if value.dtype.is_floating() and value.dtype.primitive_bitwidth == 16:\n",
            "    if value.dtype.is_floating():\n",
            "def widened",
            "test_accumulating_variants and ring",
        ),
        Defect(
            "unseen: kernels: a message moves where only the number of elements agrees, not the shape",
            "kernels/messages.py",
            "if (their_rows == M) & (their_columns == N) & (their_kind == source_kind) & (source_kind >= 0):",
            "if (their_rows * their_columns == M * N) & (their_kind == source_kind) & (source_kind >= 0):",
            "def exchange(",
            "test_send_recv and test_refused",
        ),
        Defect(
            "unseen: kernels: matmul_all_gather waits for the others' consent at the tile of the "
            "program's own number, not at its first one",
            "kernels/matmul_push.py",
            "        if tile == first:\n",
            "        if tile == program:\n",
            "def matmul_and_push",
            "test_edges and matmul_all_gather",
        ),
    ]
