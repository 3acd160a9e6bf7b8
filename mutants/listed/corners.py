"""Defects of kinds that survived the suite once: rare element types, counts, memory, views. See ``DEFECTS``."""

from __future__ import annotations

from mutants.planting import Defect

OVERLAP, PUSH = "ccl/overlap.py", "kernels/all_reduce_push.py"
VMEM, TOPOLOGY = "host/memory/allocators/vmem_allocator.py", "host/distributed/topology.py"
ADDRESS = "device/triton/address.py"
BOOLEANS = "op = {ReduceOp.SUM: ReduceOp.MAX, ReduceOp.PRODUCT: ReduceOp.MIN}.get(op, op)"


def corner_defects() -> list[Defect]:
    """Return the defects, named "corner: ..."."""
    listed = (
        ("booleans are added as bytes", "ccl/plans.py", BOOLEANS, "pass", "", "narrow_types and all_reduce"),
        ("variants add booleans as bytes", "ccl/all_reduce.py", f"{BOOLEANS} if op is not None else None", "pass", "",
         "narrow_types and all_reduce"),
        ("an epoch has the number of unwritten words", "device/flagged.py", "tl.where(epoch == -1, 2, epoch + 1)",
         "epoch + 1", "", "wrapped_counts and all_reduce"),
        ("turns are compared as numbers", "device/targets/amd.py",
         "        v_sub_u32 $0, $0, $4\n        v_cmp_gt_i32 vcc, 0, $0\n", "        v_cmp_gt_i32 vcc, $4, $0\n", "",
         "wrapped_counts and all_reduce"),
        ("a workspace is mapped at each call", "host/groups.py", "kept.own.numel() >= num_bytes",
         "kept.own.numel() > 64 * num_bytes", "", "test_room and all_reduce"),
        ("a fused product allocates at each call", "ops/launch.py", ".setdefault(key, FusedWorkspace())",
         ".setdefault((key, object()), FusedWorkspace())", "", "test_room and matmul_all_reduce"),
        ("a workspace ends in its padding", "ops/reduction.py", '(size if reduction.how == "slots" else 1), slots',
         '(size if reduction.how == "slots" else 1) - 8, slots', "", "test_edges and matmul_reduce_scatter"),
        ("variants share one workspace", "ccl/workspace.py", 'f"all_reduce {self.variant}"', '"all_reduce"', "",
         "alternating and variants"),
        ("a lazy negative is read as it lies", OVERLAP, "tensor.is_neg() or tensor.is_conj()", "tensor.is_conj()", "",
         "refused and all_reduce"),
        ("one shared element will do", OVERLAP, "(last + 1) * tensor", "last * tensor", "", "refused and all_gather"),
        ("tensors that touch are refused", OVERLAP, "starts + length - 1, their_apart", "starts + length, their_apart",
         "", "refused and all_gather"),
        ("push: no member waits at the end", PUSH, "    group.wait(pid, turn)\n", "", "half = 1 - half",
         "test_held and all_reduce"),
        ("ring: a member may run one call ahead", "kernels/all_reduce.py",
         "    signal(pads, member, SIZE, pid, turn)\n    wait(pads, SIZE, pid, turn)",
         "    signal(pads, member, SIZE, pid, turn)\n    wait(pads, SIZE, pid, turn - 1)", "",
         "test_steps and all_reduce"),
        ("ring: what is masked is loaded", "kernels/all_reduce.py",
         "own = widened(tl.load(source.ptr + source.offsets(rows, columns), mask=mask, other=0))",
         "own = widened(tl.load(source.ptr + source.offsets(rows, columns)))", "", "test_ragged and all_reduce"),
        ("words: 32-bit columns", "kernels/ll.py", "columns = tile_n.to(tl.int64) * BLOCK_N + index % BLOCK_N",
         "columns = tile_n * BLOCK_N + index % BLOCK_N", "", "test_far and all_reduce"),
        ("connections stay closed after an allocation that failed", VMEM,
         "if self._connections is not None and not self._connections:", "if False:", "", "interrupted"),
        ("a hint of any form is taken", ADDRESS, "_fits(hint, len(moved.shape))", "True", "", "test_hints"),
        ("entries of a hint are swapped", ADDRESS, "tl.max_contiguous(moved, (_entry(hint, 0), _entry(hint, 1)))",
         "tl.max_contiguous(moved, (_entry(hint, 1), _entry(hint, 0)))", "", "test_tiles"),
        ("nodes are fabrics where there is none", TOPOLOGY, "if topology.fabric_domains:", "if True:", "",
         "test_topology"),
        ("atomic: maxima are at gpu scope", "kernels/reductions.py",
         'tl.atomic_max(pointers, value, mask=mask, sem="relaxed", scope="sys")',
         'tl.atomic_max(pointers, value, mask=mask, sem="relaxed", scope="gpu")', "", "test_contract"),
        ("a wait gives up after two polls", "device/targets/amd.py", "while late != 0:",
         "while (late != 0) & (polls < 2):", "def await_turn", "test_held and matmul_all_gather"),
        ("a factory fills one element of its padding", "host/tensor_creation.py", "lambda tensor: tensor.fill_(value)",
         "lambda tensor: tensor.as_strided((tensor.numel() + 1,), (1,)).fill_(value)", "",
         "drawn_tensors and full"),
        ("errors do not name the rank that failed", VMEM, "on ranks {failed}", "somewhere", "", "interrupted"),
    )  # fmt: skip
    of_four = (
        # The sum of two values is rounded once in any case.
        ("partial sums are rounded", "kernels/move.py", "data = combined(data, widened(loaded[other + 1]), plan.OP)",
         "data = combined(data, widened(loaded[other + 1]), plan.OP).to(loaded[0].dtype).to(data.dtype)", "",
         "narrow_types"),
        ("ring: the second member signals at once", "kernels/all_reduce.py", "    next_one, place = member, member\n",
         "    if member == 1:\n        signal(pads, member, SIZE, pid, turn)\n    next_one, place = member, member\n",
         "", "test_steps and all_reduce"),
    )  # fmt: skip
    return [
        Defect(f"corner: {name}", *rest, ranks=ranks)
        for defects, ranks in ((listed, 2), (of_four, 4))
        for name, *rest in defects
    ]
