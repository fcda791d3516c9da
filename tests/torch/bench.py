"""Times of copse beside others in the same processes, on the same tensors: bench.py MIN MAX RUNS COLLECTIVE..., by scripts/bench_torch.

The others are gloo, Open MPI through mpi4py where mpirun has started the ranks, and oneCCL through its C API where the environment's
ONECCL is its folder. Runs of all alternate. A run's time is the slowest rank's, its CPU time that of all ranks and threads. A run of
a short message is of several calls, and its times are of one. Bytes are those of nccl-tests: of an allgather's output, a
reduce_scatter's input, else of each rank's tensor.
"""
import ctypes
import os
import statistics
import sys
import time

os.environ["RANK"] = os.environ.get("OMPI_COMM_WORLD_RANK") or os.environ["RANK"]
os.environ["CCL_LOCAL_RANK"] = str(int(os.environ["RANK"]) % int(os.environ["CCL_LOCAL_SIZE"]))

import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402

import copse.torch  # noqa: E402,F401

#: Calls in a run, of messages below 1 MiB: one alone is as long as ranks are apart after the barrier before it.
CALLS, LONG = 20, 1 << 20

least, most, runs = (int(x) for x in sys.argv[1:4])
dist.init_process_group("gloo")
rank, size = dist.get_rank(), dist.get_world_size()
groups = {"gloo": dist.group.WORLD, "copse": dist.new_group(backend="copse")}


class Torch:
    """Collectives of a group. Those of all classes here are blocking: (what is given, what is to be filled)."""

    def __init__(self, group):
        self.allreduce = lambda _, t: dist.all_reduce(t, group=group)
        self.allgather = lambda mine, whole: dist.all_gather_into_tensor(whole, mine, group=group)
        self.reduce_scatter = lambda whole, mine: dist.reduce_scatter_tensor(mine, whole, group=group)
        self.alltoall = lambda out, into: dist.all_to_all_single(into, out, group=group)


class Mpi:
    """Of Open MPI, as mpi4py finds it."""

    def __init__(self):
        from mpi4py import MPI
        world = MPI.COMM_WORLD
        assert (world.Get_rank(), world.Get_size()) == (rank, size)
        self.allreduce = lambda _, t: world.Allreduce(MPI.IN_PLACE, t.numpy())
        self.allgather = lambda mine, whole: world.Allgather(mine.numpy(), whole.numpy())
        self.reduce_scatter = lambda whole, mine: world.Reduce_scatter_block(whole.numpy(), mine.numpy())
        self.alltoall = lambda out, into: world.Alltoall(out.numpy(), into.numpy())


class OneCcl:
    """Of oneCCL's plugin for host memory, over libfabric. Structures and numbers are those of oneapi/ccl.h of version 2022."""

    LEGACY_CPU, UNDEFINED, FLOAT, SUM = 0xBAAAAAAE, -2**31, 7, 0

    class Config(ctypes.Structure):
        _fields_ = [("size", ctypes.c_size_t), ("magic", ctypes.c_uint), ("version", ctypes.c_uint), ("blocking", ctypes.c_int),
                    ("cluster", ctypes.c_int), ("least", ctypes.c_int), ("most", ctypes.c_int), ("net", ctypes.c_char_p),
                    ("share", ctypes.c_int), ("threads", ctypes.c_int), ("plugin", ctypes.c_uint)]

    class Id(ctypes.Structure):
        _fields_ = [("data", ctypes.c_char * 4096)]

    def __init__(self, folder):
        # what it opens by name, in order of need: with a search path Open MPI would take Intel's libraries too
        for name in ("libfabric.so.1", "libintlc.so.5", "libimf.so", "libirng.so", "libsvml.so", "libsycl.so.9", "libccl.so.2", "libccl.so.1",
                     "libccl_legacy_cpu.so"):
            ctypes.CDLL(os.path.join(folder, name), ctypes.RTLD_GLOBAL)
        self.lib = ctypes.CDLL(os.path.join(folder, "libccl.so.2"))
        version, known, undefined = ctypes.c_int(), self.Id(), self.UNDEFINED
        self.check(self.lib.onecclGetVersion(ctypes.byref(version)))
        if rank == 0:
            self.check(self.lib.onecclGetUniqueId(ctypes.byref(known)))
        told = torch.frombuffer(known, dtype=torch.uint8)
        dist.broadcast(told, 0)
        config = self.Config(ctypes.sizeof(self.Config), 0xCAFEBEEF, version.value, undefined, undefined, undefined, undefined, None,
                             undefined, undefined, self.LEGACY_CPU)
        self.comm = ctypes.c_void_p()
        self.lib.onecclCommInitRankConfig.argtypes = [ctypes.c_void_p, ctypes.c_size_t, self.Id, ctypes.c_int, ctypes.c_void_p]
        self.check(self.lib.onecclCommInitRankConfig(ctypes.byref(self.comm), size, known, rank, ctypes.byref(config)))
        self.allreduce = lambda _, t: self.call("AllReduce", t, t, t, self.SUM)
        self.allgather = lambda mine, whole: self.call("AllGather", mine, whole, mine)
        self.reduce_scatter = lambda whole, mine: self.call("ReduceScatter", whole, mine, mine, self.SUM)
        self.alltoall = lambda out, into: self.call("AllToAll", out, into, out[:len(out) // size])

    @staticmethod
    def check(status):
        if status:
            raise RuntimeError("oneCCL fails with status %d" % status)

    def call(self, name, given, filled, counted, *op):
        pointer = ctypes.c_void_p
        self.check(getattr(self.lib, "oneccl" + name)(
            pointer(given.data_ptr()), pointer(filled.data_ptr()), ctypes.c_size_t(counted.numel()), self.FLOAT, *op, self.comm, None))


# What each library is given, all ones, what it fills, and the value that this then has.


def allreduce(n):
    t = torch.ones(n)
    return t, t, size


def allgather(n):
    return torch.ones(n // size), torch.empty(n // size * size), 1


def reduce_scatter(n):
    return torch.ones(n // size * size), torch.empty(n // size), size


def alltoall(n):
    return torch.ones(n // size * size), torch.empty(n // size * size), 1


def training():
    """A step of DDP: 6 layers of a transformer's encoder, 4.7 million parameters, one sequence."""
    models = {}
    for name, group in groups.items():
        torch.manual_seed(0)
        layer = torch.nn.TransformerEncoderLayer(256, 4, 1024, batch_first=True, dropout=0)
        model = torch.nn.parallel.DistributedDataParallel(torch.nn.TransformerEncoder(layer, 6), process_group=group)
        models[name] = model, torch.optim.SGD(model.parameters(), lr=1e-3)
    x = torch.randn(1, 32, 256)

    def step(name):
        model, optimizer = models[name]
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()
    return times(list(groups), step)


def collective(what, n):
    given, filled, value = globals()[what](n)

    def call(name):
        getattr(libraries[name], what)(given, filled)

    def prepare():
        filled.fill_(-1)
        given.fill_(1)

    def check(name):
        if not bool((filled == value).all()):
            raise RuntimeError("%s of %s gives %s, not %d" % (what, name, filled, value))
    return times(list(libraries), call, prepare, check, CALLS if 4 * n < LONG else 1)


def times(names, call, prepare=lambda: None, check=lambda name: None, calls=1):
    """Microseconds and CPU microseconds of each run's calls, by name: medians."""
    taken = {name: ([], []) for name in names}
    for i in range(runs + 1):  # the first opens connections
        for name in names:
            prepare()
            dist.barrier()
            begun, busy = time.perf_counter(), time.process_time()
            for _ in range(calls if i > 0 else 1):
                call(name)
            wall = torch.tensor([time.perf_counter() - begun], dtype=torch.float64)
            cpu = torch.tensor([time.process_time() - busy], dtype=torch.float64)
            dist.all_reduce(wall, dist.ReduceOp.MAX)
            dist.all_reduce(cpu)
            if i > 0:
                taken[name][0].append(wall.item() * 1e6 / calls)
                taken[name][1].append(cpu.item() * 1e6 / calls)
            else:
                check(name)
    return {name: [statistics.median(x) for x in both] for name, both in taken.items()}


torch.set_num_threads(1)
libraries = {name: Torch(group) for name, group in groups.items()}
if "OMPI_COMM_WORLD_RANK" in os.environ:
    libraries["Open MPI"] = Mpi()
if "ONECCL" in os.environ:
    libraries["oneCCL"] = OneCcl(os.environ["ONECCL"])
others = [name for name in libraries if name != "copse"]
if rank == 0:
    print(("# %-14s %10s" + " %11s" * (3 * len(others) + 2)) % (
        "collective", "bytes", "copse us", *(o + " us" for o in others), *("x " + o for o in others), "copse CPU",
        *(o + " CPU" for o in others)), flush=True)
for what in sys.argv[4:]:
    bytes_ = least if what != "training" else most
    while bytes_ <= most:
        found = training() if what == "training" else collective(what, bytes_ // 4)
        if rank == 0:
            row = [["-" if name not in found else "%.0f" % found[name][kind] for name in ("copse", *others)] for kind in (0, 1)]
            ratio = ["-" if name not in found else "%.2f" % (found[name][0] / found["copse"][0]) for name in others]
            print(("%-16s %10s" + " %11s" * (3 * len(others) + 2)) % (
                what, bytes_ if what != "training" else "-", *row[0], *ratio, *row[1]), flush=True)
        bytes_ *= 16
dist.barrier()
dist.destroy_process_group()
