"""Many mixed collectives under torchrun: mixed.py N. Memory of rank 0 after a tenth of them and at the end, in KiB."""
import resource
import sys

import torch
import torch.distributed as dist

import copse.torch  # noqa: F401

dist.init_process_group("copse")
rank, size, n = dist.get_rank(), dist.get_world_size(), int(sys.argv[1])


def resident():
    with open("/proc/self/statm") as text:
        return int(text.read().split()[1]) * resource.getpagesize() // 1024


for i in range(n):
    count = 1 + (i * 7919) % 5000
    t = torch.full((count,), float(rank))
    work = dist.all_reduce(t, async_op=i % 2 == 0)
    if work is not None:
        work.wait()
    assert t[0] == size * (size - 1) / 2
    dist.broadcast(t, i % size)
    whole = torch.empty(size * count)
    dist.all_gather_into_tensor(whole, t)
    dist.reduce_scatter_tensor(t, whole)
    parts = [torch.full(((i + r) % 5,), float(rank)) for r in range(size)]
    mine = torch.empty_like(parts[rank])
    dist.reduce_scatter(mine, parts)
    assert bool((mine == size * (size - 1) / 2).all())
    sizes = [(i + rank + r) % 5 for r in range(size)]
    dist.all_to_all_single(torch.empty(sum(sizes)), torch.ones(sum(sizes)), sizes, sizes)
    if rank < 2:
        (dist.send if rank == i % 2 else dist.recv)(t, 1 - rank)
    if rank == 0 and i == n // 10:
        print("resident", resident(), flush=True)
if rank == 0:
    print("resident", resident(), flush=True)
dist.destroy_process_group()
