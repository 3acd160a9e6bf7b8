"""Helpers of the requirements for several nodes: the ranks of each node.

The ranks of a node are consecutive, and every node has as many.
"""

from dataclasses import replace

import torch.distributed as dist


def near(env):
    """Return the ranks of this rank's node, ascending, as the harness placed them."""
    placed = [None] * env.world_size
    dist.all_gather_object(placed, env.node)
    return [rank for rank, node in enumerate(placed) if node == env.node]


def within(env, case):
    """Return a case of a collective whose groups are the nodes."""
    return replace(case, group=f"by {env.world_size // env.nodes}")
