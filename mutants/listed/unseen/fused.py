"""The host side of fused products."""

from __future__ import annotations

from mutants.planting import Defect


def fused_defects() -> list[Defect]:
    """Return the defects."""
    return [
        Defect(
            "unseen: ops: even inner blocks judged by the whole K",
            "ops/launch.py",
            "**plan.blocks(given.A.shape[1]), **constants,",
            "**plan.blocks(plan.shape[2]), **constants,",
            "def enqueue(",
            "test_ragged and all_gather_matmul",
        ),
        Defect(
            "unseen: ops: nothing is launched for K = 0",
            "ops/launch.py",
            "if plan.shape[0] and plan.shape[1]:",
            "if all(plan.shape):",
            "def call(",
            "test_ragged and matmul_all_reduce",
        ),
        Defect(
            "unseen: ops: rows of B beyond K are not masked",
            "kernels/matmul.py",
            "            a_mask = a_mask & (depth[None, :] < K - start)\n"
            "            b_mask = b_mask & (depth[:, None] < K - start)\n",
            "            a_mask = a_mask & (depth[None, :] < K - start)  # zeros of A cancel what "
            "follows B's last row\n",
            "def add_product(",
            "test_edges and matmul_all_reduce",
        ),
        Defect(
            "unseen: ops: slots of a reduce-scatter rounded up evenly",
            "ops/reduction.py",
            "        share = self.share(tiles, size)\n        return max(share, tiles - share * (size - 1))\n",
            "        return -(-tiles // size)\n",
            "def slots(",
            "test_edges and matmul_reduce_scatter",
            ranks=4,
        ),
        Defect(
            "unseen: ops: sums by program number instead of by spread number",
            "kernels/matmul_reduce.py",
            "for tile in range(first, tiles, programs):",
            "for tile in range(program, tiles, programs):",
            "wait(pads, SIZE, program, turn + 1)",
            "test_edges and matmul_reduce_scatter",
        ),
        Defect(
            "unseen: ops: only the first tile waits for late receivers",
            "kernels/matmul_push.py",
            "if tile == first:",
            "if tile == 0:",
            "def matmul_and_push(",
            "test_edges and matmul_all_gather",
        ),
        Defect(
            "unseen: ops: a cleared workspace keeps its layout",
            "ops/workspace.py",
            "self.prepared, self.layout = False, ()",
            "self.prepared = False",
            "def clear(",
            "test_edges and matmul_all_reduce",
        ),
        Defect(
            "unseen: ops: bias added after the rounding",
            "kernels/gather_matmul.py",
            "        if BIASED:\n"
            "            total += tl.load(bias + rows * stride_bias, mask=rows < M, "
            "other=0.0).to(tl.float32)\n"
            "        value = total.to(c.dtype.element_ty)\n",
            "        value = total.to(c.dtype.element_ty)\n"
            "        if BIASED:\n"
            "            value += tl.load(bias + rows * stride_bias, mask=rows < M, other=0.0)\n",
            "def gather_and_matmul(",
            "test_edges and all_gather_matmul",
        ),
        Defect(
            "unseen: ops: a lazily negated output is accepted",
            "ops/operands.py",
            "if is_lazy(tensor):",
            'if name != "output" and is_lazy(tensor):',
            "def checked(",
            "test_refused and matmul_all_reduce",
        ),
        Defect(
            "unseen: ops: an event beyond 2^31 is ended in memory before the table",
            "device/trace_records.py",
            "mask=(handle >= 0) & (handle < tracing.max_events))",
            "mask=handle < tracing.max_events)",
            "def close_record(",
            "test_gluon and first",
        ),
        Defect(
            "unseen: ops: the trace table lives as long as the latest enable",
            "host/tracing/tracing.py",
            "context._iris_trace_table = table  # type: ignore[attr-defined]",
            "self._table = table",
            "def enable(",
            "tracing and test_host",
        ),
        Defect(
            "unseen: ops: events that end together are put on two threads",
            "host/tracing/export.py",
            "if not ends or end <= ends[-1]",
            "if not ends or end < ends[-1]",
            "def nested_lanes(",
            "test_export",
        ),
        Defect(
            "unseen: ops: handlers of the root logger count as the library's own",
            "host/logging/logging.py",
            "if not logger.handlers:",
            "if not logger.hasHandlers():",
            "def configure(",
            "test_log_format",
        ),
        Defect(
            "unseen: ops: the key of an instance's own workspaces lacks the layout, so that another "
            "config takes away the memory of the first",
            "ops/launch.py",
            "    key = (plan.operation, plan.shape, plan.dtype, plan.variant, plan.layout)\n",
            "    key = (plan.operation, plan.shape, plan.dtype, plan.variant)\n",
            "def _chosen",
            "test_held and matmul_all_reduce",
        ),
        Defect(
            "unseen: ops: a workspace of another instance is taken as fitting",
            "ops/launch.py",
            "    made_here = workspace._heap_of is not None and workspace._heap_of() is ctx\n",
            "    made_here = workspace._heap_of is not None\n",
            "def _fits",
            "test_room and matmul_all_reduce",
        ),
        Defect(
            "unseen: ops: reset() does not make the next call initialise the memory; only newly "
            "allocated memory is zeroed",
            "ops/launch.py",
            "        workspace.locks = _memory(ctx, locks, torch.int32, plan.symmetric)\n"
            "    for buffer in (workspace.aux_buffer, workspace.locks):\n"
            "        if buffer is not None:\n"
            "            buffer.zero_()\n",
            "        workspace.locks = _memory(ctx, locks, torch.int32, plan.symmetric)\n"
            "        for buffer in (workspace.aux_buffer, workspace.locks):\n"
            "            if buffer is not None:\n"
            "                buffer.zero_()\n",
            "def _prepared",
            "test_room and matmul_all_reduce",
        ),
        Defect(
            "unseen: ops: after a call that found the heap full the workspace claims a fit, so that "
            "the repeated call has no memory",
            "ops/launch.py",
            "        workspace.symmetric, workspace._heap_of = plan.symmetric, weakref.ref(ctx)\n"
            "        aux, locks = plan.buffers\n"
            "        workspace.aux_buffer = _memory(ctx, aux, plan.aux_dtype, plan.symmetric)\n"
            "        workspace.locks = _memory(ctx, locks, torch.int32, plan.symmetric)\n"
            "    for buffer in (workspace.aux_buffer, workspace.locks):\n"
            "        if buffer is not None:\n"
            "            buffer.zero_()\n"
            "    if workspace.locks is not None and plan.locks_start:\n"
            "        workspace.locks[: len(plan.locks_start)] = torch.tensor(plan.locks_start, "
            "dtype=torch.int32)\n"
            "    if plan.symmetric and any(plan.buffers):\n"
            "        ctx.barrier()  # peers may write only after it is zero\n"
            "    workspace.operation, workspace.shape, workspace.dtype = plan.operation, plan.shape, "
            "plan.dtype\n"
            "    workspace.world_size, workspace.variant, workspace.layout = plan.members.size, "
            "plan.variant, plan.layout\n",
            "        workspace.symmetric, workspace._heap_of = plan.symmetric, weakref.ref(ctx)\n"
            "        workspace.operation, workspace.shape, workspace.dtype = plan.operation, "
            "plan.shape, plan.dtype\n"
            "        workspace.world_size, workspace.variant, workspace.layout = plan.members.size, "
            "plan.variant, plan.layout\n"
            "        aux, locks = plan.buffers\n"
            "        workspace.aux_buffer = _memory(ctx, aux, plan.aux_dtype, plan.symmetric)\n"
            "        workspace.locks = _memory(ctx, locks, torch.int32, plan.symmetric)\n"
            "    for buffer in (workspace.aux_buffer, workspace.locks):\n"
            "        if buffer is not None:\n"
            "            buffer.zero_()\n"
            "    if workspace.locks is not None and plan.locks_start:\n"
            "        workspace.locks[: len(plan.locks_start)] = torch.tensor(plan.locks_start, "
            "dtype=torch.int32)\n"
            "    if plan.symmetric and any(plan.buffers):\n"
            "        ctx.barrier()  # peers may write only after it is zero\n",
            "def _prepared",
            "test_room and matmul_all_reduce",
        ),
        Defect(
            "unseen: ops: the config that the caller passed is changed where block_size_k has to be halved",
            "ops/launch.py",
            "    return replace(config, block_size_k=block_k)\n",
            "    config.block_size_k = block_k\n    return config\n",
            "def _fitting",
            "test_config and ops",
        ),
        Defect(
            "unseen: ops: readiness of the workspace is no longer compared, so that one rank with a "
            "fresh workspace hangs the job",
            "ops/launch.py",
            '        return f"{arguments}, ready {ready}", launched\n',
            "        return arguments, launched\n",
            "def call",
            "test_refused_on_one_rank",
        ),
        Defect(
            "unseen: ops: num_sms above 1024 launches more programs than there are signal words",
            "ops/launch.py",
            '    programs = min(config.num_sms or _device(ctx)["multiprocessor_count"], MAX_PROGRAMS.value)\n',
            '    programs = config.num_sms or _device(ctx)["multiprocessor_count"]\n',
            "def plan_of",
            "test_room and matmul_reduce_scatter",
        ),
        Defect(
            "unseen: ops: an instance that has run one fused op without a workspace is never released",
            "ops/launch.py",
            "_workspaces: weakref.WeakKeyDictionary[Instance, dict[tuple[Any, ...], FusedWorkspace]] "
            "= weakref.WeakKeyDictionary()\n",
            "_workspaces: dict[Instance, dict[tuple[Any, ...], FusedWorkspace]] = {}\n",
            "",
            "test_room and matmul_all_gather",
        ),
        Defect(
            "unseen: ops: clear() frees the parts but not the locks",
            "ops/workspace.py",
            "        for buffer in (self.aux_buffer, self.locks):\n"
            "            instance = self._heap_of() if self._heap_of is not None else None\n"
            "            if buffer is not None and self.symmetric and instance is not None:\n"
            "                instance.free(buffer)\n",
            "        instance = self._heap_of() if self._heap_of is not None else None\n"
            "        if self.aux_buffer is not None and self.symmetric and instance is not None:\n"
            "            instance.free(self.aux_buffer)\n",
            "def clear",
            "test_room and matmul_all_reduce",
        ),
    ]
