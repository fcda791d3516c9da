"""Times of copse beside gloo: bench.py MIN MAX RUNS COLLECTIVE..., started by scripts/bench_torch.

Runs of both alternate; a run's time is the slowest rank's, its CPU time that of all ranks and threads. Bytes are those of nccl-tests: of an
allgather's output, a reduce_scatter's input, else of each rank's tensor.
"""
import statistics
import sys
import time

import torch
import torch.distributed as dist

import copse.torch  # noqa: F401

least, most, runs = (int(x) for x in sys.argv[1:4])
dist.init_process_group("gloo")
rank, size = dist.get_rank(), dist.get_world_size()
groups = {"gloo": dist.group.WORLD, "copse": dist.new_group(backend="copse")}


def allreduce(n):
    t = torch.ones(n)
    return lambda g: dist.all_reduce(t, group=g)


def allgather(n):
    mine, whole = torch.ones(n // size), torch.empty(n // size * size)
    return lambda g: dist.all_gather_into_tensor(whole, mine, group=g)


def reduce_scatter(n):
    mine, whole = torch.empty(n // size), torch.ones(n // size * size)
    return lambda g: dist.reduce_scatter_tensor(mine, whole, group=g)


def alltoall(n):
    out, into = torch.ones(n // size * size), torch.empty(n // size * size)
    return lambda g: dist.all_to_all_single(into, out, group=g)


def training(_):
    """A step of DDP: 6 layers of a transformer's encoder, 4.7 million parameters, one sequence."""
    models = {}
    for name, group in groups.items():
        torch.manual_seed(0)
        layer = torch.nn.TransformerEncoderLayer(256, 4, 1024, batch_first=True, dropout=0)
        model = torch.nn.parallel.DistributedDataParallel(torch.nn.TransformerEncoder(layer, 6), process_group=group)
        models[group] = model, torch.optim.SGD(model.parameters(), lr=1e-3)
    x = torch.randn(1, 32, 256)

    def step(group):
        model, optimizer = models[group]
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()
    return step


def times(call):
    """Microseconds and CPU microseconds of each run, by backend."""
    taken = {name: ([], []) for name in groups}
    for i in range(runs + 1):  # the first opens connections
        for name, group in groups.items():
            dist.barrier()
            begun, busy = time.perf_counter(), time.process_time()
            call(group)
            wall = torch.tensor([time.perf_counter() - begun], dtype=torch.float64)
            cpu = torch.tensor([time.process_time() - busy], dtype=torch.float64)
            dist.all_reduce(wall, dist.ReduceOp.MAX)
            dist.all_reduce(cpu)
            if i > 0:
                taken[name][0].append(wall.item() * 1e6)
                taken[name][1].append(cpu.item() * 1e6)
    return taken


torch.set_num_threads(1)
if rank == 0:
    print("# %-14s %10s %12s %12s %8s %12s %12s" % (
        "collective", "bytes", "gloo us", "copse us", "times", "gloo CPU us", "copse CPU us"), flush=True)
for what in sys.argv[4:]:
    bytes_ = least if what != "training" else most
    while bytes_ <= most:
        taken = times(globals()[what](bytes_ // 4))
        (gloo, gloo_cpu), (ours, our_cpu) = ([statistics.median(x) for x in taken[name]] for name in ("gloo", "copse"))
        if rank == 0:
            print("%-16s %10s %12.0f %12.0f %8.2f %12.0f %12.0f" % (
                what, bytes_ if what != "training" else "-", gloo, ours, gloo / ours, gloo_cpu, our_cpu), flush=True)
        bytes_ *= 16
dist.barrier()
dist.destroy_process_group()
