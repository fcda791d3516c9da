"""Sums of all kinds, of the world and of a sub-group: bits.py. Rank 1 prints a digest of their bits."""
import hashlib
from datetime import timedelta

import torch
import torch.distributed as dist

import copse.torch  # noqa: F401

dist.init_process_group("copse", timeout=timedelta(seconds=60))
rank, size, digest = dist.get_rank(), dist.get_world_size(), hashlib.sha256()
others = dist.new_group(list(range(1, size)))
mine = torch.Generator().manual_seed(rank)
for n in (7, 1000, 300000):
    for op in (dist.ReduceOp.SUM, dist.ReduceOp.AVG):
        t = torch.randn(n, generator=mine)
        dist.all_reduce(t, op)
        part, whole = torch.empty(n), torch.empty(n * size)
        dist.reduce_scatter_tensor(part, torch.randn(n * size, generator=mine), op)
        dist.all_gather_into_tensor(whole, part)
        rooted = torch.randn(n, generator=mine)
        dist.reduce(rooted, 1, op)
        dist.broadcast(rooted, 1)
        for result in (t, whole, rooted):
            digest.update(result.numpy().tobytes())
    if rank > 0:
        t = torch.randn(n, generator=mine)
        dist.all_reduce(t, group=others)
        digest.update(t.numpy().tobytes())
        ones = torch.ones(n)
        dist.all_reduce(ones, group=others)
        assert bool((ones == size - 1).all())
if rank == 1:
    print(digest.hexdigest(), flush=True)
dist.barrier()
dist.destroy_process_group()
