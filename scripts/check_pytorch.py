#!/usr/bin/env python3
"""PyTorch's collectives with the drop-in for NCCL preloaded, a process per GPU of this machine.

    scripts/check_pytorch.py [--build build] [--ranks N | --hosts N | --cpu]

With --hosts each of N ranks has a host of its own, as NCCL and copse see it, whatever GPUs there are,
even one for all: a host name of its own (root may give one), and NCCL between them over the loopback.
Makes plans for that many ranks, runs all_reduce, all_gather_into_tensor, reduce_scatter_tensor,
broadcast, reduce and all_to_all_single (also with uneven splits, and all_reduce in a CUDA graph),
compares every element, and looks in the log whether copse served the calls. With one rank the log
must say that they were passed to NCCL. With --cpu PyTorch is imported with the drop-in preloaded and two
ranks run its collectives over Gloo, which needs no GPU: that the drop-in stays out of the way. Exit status: 0 right, 1 wrong, 77 skipped (no PyTorch, no GPU,
no right to name hosts).
"""

import argparse
import ctypes
import itertools
import json
import os
import re
import socket
import subprocess
import sys
import tempfile

COLLECTIVES = ("allreduce", "allgather", "reduce_scatter", "broadcast", "reduce", "alltoall")
# As the log calls them.
NAMES = ("AllReduce", "AllGather", "ReduceScatter", "Broadcast", "Reduce", "AlltoAll")
COUNTS = (1, 17, 4096, 1 << 20)


def skip(why):
    print(f"SKIP check_pytorch: {why}")
    sys.exit(77)


# ---- a rank ---------------------------------------------------------------------------------


CLONE_NEWUTS = 0x04000000


def enter_host(name):
    """This process has a host name of its own from here on; false where it may not."""
    if ctypes.CDLL(None, use_errno=True).unshare(CLONE_NEWUTS) != 0:
        return False
    socket.sethostname(name)
    return True


def run_rank():
    import torch
    import torch.distributed as dist

    rank, n = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    if "CHECK_PYTORCH_HOSTS" in os.environ and not enter_host(f"check-pytorch-{rank}"):
        sys.exit(f"rank {rank}: may not have a host name of its own")
    torch.cuda.set_device(rank % torch.cuda.device_count())
    dist.init_process_group("nccl", rank=rank, world_size=n)

    def data(r, count):  # small integers: every order of addition gives the same bits
        return ((torch.arange(count, device="cuda") * (r + 3)) % 101).float()

    def check(what, got, want):
        if not torch.equal(got, want):
            wrong = int((got != want).sum())
            sys.exit(f"rank {rank}: {what} of {got.numel()} elements: {wrong} are wrong")

    for count in COUNTS:
        mine = data(rank, count)
        total = sum(data(r, count) for r in range(n))
        wide = data(rank, n * count)
        wide_total = sum(data(r, n * count) for r in range(n))
        part = slice(rank * count, (rank + 1) * count)

        got = mine.clone()
        dist.all_reduce(got)
        check("all_reduce", got, total)

        got = torch.empty(n * count, device="cuda")
        dist.all_gather_into_tensor(got, mine)
        check("all_gather", got, torch.cat([data(r, count) for r in range(n)]))

        got = torch.empty(count, device="cuda")
        dist.reduce_scatter_tensor(got, wide)
        check("reduce_scatter", got, wide_total[part])

        got = mine.clone()
        dist.broadcast(got, src=0)
        check("broadcast", got, data(0, count))

        got = mine.clone()
        dist.reduce(got, dst=0)
        if rank == 0:
            check("reduce", got, total)

        got = torch.empty_like(wide)
        dist.all_to_all_single(got, wide)
        check("all_to_all_single", got, torch.cat([data(r, n * count)[part] for r in range(n)]))

        # rank r sends (r + p) % 3 + 1 times `count` to rank p
        sends = [((rank + p) % 3 + 1) * count for p in range(n)]
        starts = [[sum(((r + q) % 3 + 1) * count for q in range(p)) for p in range(n)]
                  for r in range(n)]
        got = torch.empty(sum(sends), device="cuda")  # the counts are symmetric
        dist.all_to_all_single(got, data(rank, sum(sends)), sends, sends)
        want = [data(r, starts[r][rank] + sends[r])[starts[r][rank]:] for r in range(n)]
        check("all_to_all_single, uneven", got, torch.cat(want))

        static = mine.clone()
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            dist.all_reduce(static)
        for _ in range(3):
            static.copy_(mine)
            graph.replay()
        check("all_reduce in a graph", static, total)

    torch.cuda.synchronize()
    dist.destroy_process_group()


def run_cpu_rank():
    import torch
    import torch.distributed as dist

    rank, n = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    dist.init_process_group("gloo", rank=rank, world_size=n)
    for count in COUNTS:
        every = [((torch.arange(count) * (r + 3)) % 101).float() for r in range(n)]
        total, mine = sum(every), every[rank].clone()
        dist.all_reduce(mine)
        got = [torch.empty(count) for _ in range(n)]
        dist.all_gather(got, every[rank])
        first = every[rank].clone()
        dist.broadcast(first, src=0)
        added = every[rank].clone()
        dist.reduce(added, dst=1)
        if not (torch.equal(mine, total) and all(map(torch.equal, got, every)) and torch.equal(first, every[0]) and
                (rank != 1 or torch.equal(added, total))):
            sys.exit(f"rank {rank}: wrong elements over Gloo, {count} elements")
    dist.barrier()
    dist.destroy_process_group()
    version = torch.cuda.nccl.version() if dist.is_nccl_available() else "without NCCL"
    print(f"PyTorch {torch.__version__}, NCCL {version}", flush=True)


# ---- the job --------------------------------------------------------------------------------


def make_plans(build, folder, n):
    if n == 1:
        return
    copse = os.path.join(build, "copse")
    topology, schedule = os.path.join(folder, "topology.json"), os.path.join(folder, "schedule.json")

    def run(*arguments):
        subprocess.run([copse, *arguments], check=True, stdout=subprocess.DEVNULL)

    ids = [f"gpu{r}" for r in range(n)]
    with open(topology, "w") as file:
        json.dump({"format": "copse-topology/1", "name": f"full-{n}",
                   "nodes": [{"id": i, "type": "gpu"} for i in ids],
                   "links": [{"src": a, "dst": b, "bandwidth": 50}
                             for a, b in itertools.combinations(ids, 2)]}, file)
    for collective in COLLECTIVES:
        root = ["--root", "0"] if collective in ("broadcast", "reduce") else []
        run("solve", topology, "-c", collective, *root, "-o", schedule)
        run("lower", schedule, "--to", "plan", "-o", os.path.join(folder, f"{collective}.plan"))


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def hosts_environment(r):
    """NCCL then takes rank r for a host, and two of them may have the same GPU."""
    return {"CHECK_PYTORCH_HOSTS": "1", "NCCL_HOSTID": f"check-pytorch-{r}",
            "NCCL_SOCKET_IFNAME": "lo", "NCCL_IB_DISABLE": "1", "COPSE_SEVERAL_HOSTS": "1"}


def run_job(build, folder, n, hosts, role="--as-rank"):
    environment = dict(
        os.environ, WORLD_SIZE=str(n), MASTER_ADDR="127.0.0.1", MASTER_PORT=str(free_port()),
        LD_PRELOAD=os.path.join(build, "libcopse-nccl.so"), COPSE_PLAN_DIR=folder,
        COPSE_DEBUG="INFO", COPSE_NCCL_ALLTOALL="1")
    logs = [tempfile.TemporaryFile("w+") for _ in range(n)]
    ranks = [
        subprocess.Popen([sys.executable, os.path.abspath(__file__), role],
                         env=dict(environment, RANK=str(r), LOCAL_RANK=str(0 if hosts else r),
                                  **(hosts_environment(r) if hosts else {})),
                         stdout=logs[r], stderr=subprocess.STDOUT) for r in range(n)
    ]
    failed = False
    for rank in ranks:
        try:
            failed |= rank.wait(timeout=600) != 0
        except subprocess.TimeoutExpired:
            print("check_pytorch: a rank hangs")
            failed = True
    for rank in ranks:
        if rank.poll() is None:
            rank.kill()
            rank.wait()
    texts = []
    for log in logs:
        log.seek(0)
        texts.append(log.read())
    return failed, texts


def may_name_hosts():
    child = os.fork()
    if child == 0:
        os._exit(0 if enter_host("check-pytorch") else 1)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def judge_log(text, rank, n):
    """What the log lacks, as a list of lines."""
    lacks = []
    for name in NAMES:
        lines = [l for l in text.splitlines() if re.search(rf"COPSE INFO NCCL {name}: ", l)]
        # with one rank PyTorch copies instead, which it does depends on its version
        if not lines and (n > 1 or name == "AllReduce"):
            lacks.append(f"rank {rank}: the log has nothing on {name}")
        if n > 1 and lines and not any("served by" in l for l in lines):
            lacks.append(f"rank {rank}: {name} was not served: {lines[0]}")
    return lacks


def check_cpu(build):
    with tempfile.TemporaryDirectory() as folder:
        failed, texts = run_job(build, folder, 2, False, "--as-cpu-rank")
    said = re.search(r"^PyTorch .*", texts[0], re.M)
    if failed or not said:
        for r, text in enumerate(texts):
            print(f"---- rank {r}\n{text}")
        print("check_pytorch: FAILED")
        sys.exit(1)
    print(f"check_pytorch: {said.group(0)}: imported under the drop-in, 2 ranks over Gloo: right")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--build", default="build")
    parser.add_argument("--ranks", type=int, default=0, help="default: as many as GPUs")
    parser.add_argument("--hosts", type=int, default=0, help="as many hosts of one rank each")
    parser.add_argument("--cpu", action="store_true", help="PyTorch's collectives without a GPU")
    parser.add_argument("--as-rank", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--as-cpu-rank", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.as_rank:
        run_rank()
        return
    if options.as_cpu_rank:
        run_cpu_rank()
        return
    try:
        import torch
        import torch.distributed as dist
    except ImportError:
        skip("PyTorch is not installed")
    if options.cpu:
        check_cpu(os.path.abspath(options.build))
        return
    if not torch.cuda.is_available():
        skip("PyTorch sees no GPU")
    if not dist.is_nccl_available():
        skip("this PyTorch has no NCCL")
    if options.hosts and not may_name_hosts():
        skip("this user may not name hosts (--hosts needs root)")
    n = options.hosts or options.ranks or torch.cuda.device_count()
    build = os.path.abspath(options.build)
    with tempfile.TemporaryDirectory() as folder:
        make_plans(build, folder, n)
        failed, texts = run_job(build, folder, n, options.hosts > 0)
    lacks = [line for r, text in enumerate(texts) for line in judge_log(text, r, n)]
    if failed or lacks:
        for r, text in enumerate(texts):
            print(f"---- rank {r}\n{text}")
        print("\n".join(lacks))
        print("check_pytorch: FAILED")
        sys.exit(1)
    how = "served by copse" if n > 1 else "passed to NCCL, as one rank must be"
    where = f"{n} hosts of a rank each" if options.hosts else f"{n} rank(s)"
    print(f"check_pytorch: {where}, {len(COUNTS)} sizes: right, and {how}")


if __name__ == "__main__":
    main()
