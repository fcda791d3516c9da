"""What goes wrong in a group, under torchrun's environment: errors.py CASE; every rank prints its exception.

errors.py kill JOBS, errors.py mismatch JOBS: so many jobs of two to four ranks, several at once, forked so that PyTorch is
imported once. In kill a rank is killed at a random moment of mixed collectives, in mismatch one calls with another
shape, type, reduction, collective or root. Prints what ranks say in jobs where not each of the others names that
rank, or where shared memory is left, and how many jobs are right. SEED: of the first job (default 0).
"""
import os
import random
import re
import signal
import socket
import sys
import threading
import time
from datetime import timedelta

import torch
import torch.distributed as dist

import copse.torch  # noqa: F401

#: Jobs at the same time: most of a job's time ranks wait.
AT_ONCE = 4
LIMIT = float(os.environ.get("LIMIT", "5"))
TYPES = [torch.float32, torch.float64, torch.int32, torch.int64, torch.int8, torch.uint8, torch.float16, torch.bfloat16,
         torch.bool, torch.int16, torch.complex64]
REDUCE = ("all_reduce", "all_reduce_coalesced", "reduce", "reduce_scatter", "reduce_scatter_tensor")
ROOTED = ("broadcast", "reduce", "gather", "scatter")
COLLECTIVES = sorted({*REDUCE, *ROOTED, "all_gather", "all_gather_into_tensor", "all_to_all", "all_to_all_single",
                      "all_to_all_uneven"})


def say(text):
    """A line, whole among those of other ranks."""
    os.write(1, (text.replace("\n", " ") + "\n").encode())


def call(what, kind, count, op, root):
    n, mine = dist.get_world_size(), dist.get_rank()

    def one(m=count):
        return torch.ones(m, dtype=kind)

    def each():
        return [one() for _ in range(n)]
    reduction = getattr(dist.ReduceOp, op)
    if what == "all_reduce":
        dist.all_reduce(one(), reduction)
    elif what == "all_reduce_coalesced":
        dist.all_reduce_coalesced([one(), one(3)], reduction)
    elif what == "reduce":
        dist.reduce(one(), root, reduction)
    elif what == "reduce_scatter":
        dist.reduce_scatter(one(), each(), reduction)
    elif what == "reduce_scatter_tensor":
        dist.reduce_scatter_tensor(one(), one(n * count), reduction)
    elif what == "broadcast":
        dist.broadcast(one(), root)
    elif what == "gather":
        dist.gather(one(), each() if mine == root else None, root)
    elif what == "scatter":
        dist.scatter(one(), each() if mine == root else None, root)
    elif what == "all_gather":
        dist.all_gather(each(), one())
    elif what == "all_gather_into_tensor":
        dist.all_gather_into_tensor(one(n * count), one())
    elif what == "all_to_all":
        dist.all_to_all(each(), each())
    elif what == "all_to_all_single":
        dist.all_to_all_single(one(n * count), one(n * count))
    elif what == "all_to_all_uneven":
        dist.all_to_all_single(one(n * count), one(n * count), [count] * n, [count] * n)


def drawn(draw, n):
    """Arguments of a call."""
    kind = draw.choice(TYPES)
    ops = ["SUM"] if kind.is_complex else ["SUM", "MAX", "MIN", "PRODUCT"]
    if not kind.is_complex and not kind.is_floating_point:
        ops += ["BAND", "BOR"]
    return [draw.choice(COLLECTIVES), kind, draw.choice([1, 3, 7, 100, 5000, 100000]), draw.choice(ops), draw.randrange(n)]


ALIKE = ({"all_gather", "all_gather_into_tensor"}, {"reduce_scatter", "reduce_scatter_tensor"},
         {"all_to_all", "all_to_all_uneven"})


def same_to_copse(a, b):
    """Types that copse doesn't have are told apart by size alone; of truth values or and sum, and and product are one."""
    kinds = {a[1], b[1]}
    return (len(kinds) == 2 and (kinds <= {torch.int16, torch.float16} or kinds <= {torch.uint8, torch.bool})
            or kinds == {torch.bool} and a[3] != b[3] or a[0] != b[0] and any({a[0], b[0]} <= same for same in ALIKE))


def pair(draw, n):
    """Two calls that differ in one thing."""
    while True:
        one = drawn(draw, n)
        at = draw.randrange(5)
        other = list(one)
        other[at] = drawn(draw, n)[at]
        legal = not (other[1].is_floating_point or other[1].is_complex) or other[3] not in ("BAND", "BOR")
        legal = legal and not (other[1].is_complex and other[3] != "SUM")
        seen = {3: one[0] in REDUCE, 4: one[0] in ROOTED}.get(at, True)
        if other != one and legal and seen and not same_to_copse(one, other):
            return one, other


def run(case, first=None, second=None, odd=1):
    if case == "settings" and os.environ["RANK"] == "1":
        os.environ["COPSE_SAME_BITS"] = "1"
    try:
        dist.init_process_group("copse", timeout=timedelta(seconds=LIMIT))
    except dist.DistBackendError as why:
        say("rank %s: %s" % (os.environ["RANK"], why))
        time.sleep(2)  # rank 0 has the store that the others read from
        sys.exit(1)
    rank = dist.get_rank()
    dist.barrier()
    time.sleep(1)  # all have left it
    begun = time.time()
    try:
        if case == "kill":
            for i in range(1000000):
                if i == len(first):
                    say("go")  # all plans of roots are there
                call(*first[i % len(first)])
        elif case == "mismatch":
            call(*(second if rank == odd else first))
            dist.barrier()  # a root may have left before
        elif case == "shape":
            dist.all_reduce(torch.ones(10 + (rank == 1)))
        elif case == "call" and rank == 1:
            dist.all_gather_into_tensor(torch.empty(4 * dist.get_world_size()), torch.ones(4))
        elif case == "call":
            dist.all_reduce(torch.ones(4))
        elif case == "recv" and rank == 0:
            dist.recv(torch.empty(2), 1)
        elif case == "recv":
            time.sleep(LIMIT + 2)
    except dist.DistBackendError as why:
        say("rank %d after %.1f s: %s" % (rank, time.time() - begun, why))
        time.sleep(2)  # as above


def free_port():
    """Below those that systems give out, so that none of UCX's or another program's takes it before rank 0 listens."""
    while True:
        port = random.randrange(10000, 32768)
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) != 0:
                return port


def job(case, seed):
    """What is wrong with a job, or nothing."""
    draw = random.Random(seed)
    n = draw.choice([2, 3, 4])
    odd = draw.randrange(n)
    if case == "kill":
        calls = [drawn(draw, n) for _ in range(6)], None
    else:
        calls = pair(draw, n)
    port = free_port()
    read, write = os.pipe()
    children = []
    for rank in range(n):
        child = os.fork()
        if child == 0:
            try:
                os.environ.update(WORLD_SIZE=str(n), MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), RANK=str(rank))
                os.dup2(write, 1)
                run(case, *calls, odd)
            except BaseException as why:  # pylint: disable=broad-except
                say("rank %d: %s: %s" % (rank, type(why).__name__, why))
            os._exit(0)
        children.append(child)
    os.close(write)
    late = threading.Timer(20 * LIMIT, lambda: [os.kill(child, signal.SIGKILL) for child in children])
    late.start()
    said, began = "", 0
    with os.fdopen(read) as lines:
        for line in lines:
            if line == "go\n":
                began += 1
                if began == n and case == "kill":
                    time.sleep(draw.uniform(0, 0.5))
                    os.kill(children[odd], signal.SIGKILL)
            else:
                said += line
    late.cancel()
    for child in children:
        os.waitpid(child, 0)
    words = "rank %d does not answer" % odd if case == "kill" else "(calls that differ.* rank %d in call|: all_to_all: .*rank %d\\b)" % (odd, odd)
    wrong = [rank for rank in range(n) if (case, rank) != ("kill", odd)
             and not re.search("^rank %d after .*%s" % (rank, words), said, re.M)]
    return wrong and "job %d of %d ranks, rank %d, %s:\n%s" % (seed, n, odd, calls, said)


if sys.argv[1] not in ("kill", "mismatch"):
    run(sys.argv[1])
    sys.exit()


def segments():
    """Shared memory of POSIX and of System V."""
    with open("/proc/sysvipc/shm") as text:
        return {*os.listdir("/dev/shm"), *(line.split()[1] for line in text)}


first, jobs, right, before = int(os.environ.get("SEED", "0")), int(sys.argv[2]), 0, segments()
read, write = os.pipe()
for part in range(AT_ONCE):
    if os.fork() == 0:
        for seed in range(first + part, first + jobs, AT_ONCE):
            os.write(write, ((job(sys.argv[1], seed) or "right") + "\0").encode())
        os._exit(0)
os.close(write)
with os.fdopen(read) as said:
    for text in said.read().split("\0")[:-1]:
        if text == "right":
            right += 1
        else:
            print(text, flush=True)
left = segments() - before
print("left %s" % " ".join(sorted(left)) if left else "nothing left in shared memory")
print("right %d" % right)
