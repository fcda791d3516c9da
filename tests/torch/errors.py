"""What goes wrong in a group, under torchrun's environment: errors.py CASE; every rank prints its exception.

errors.py kill JOBS: so many jobs of three ranks, of which one is killed after some calls. Forked, so that PyTorch is
imported once. Prints what the others say in jobs where that isn't the name of the dead one, and how many are right.
"""
import os
import random
import signal
import socket
import sys
import time
from datetime import timedelta

import torch
import torch.distributed as dist

import copse.torch  # noqa: F401


def say(text):
    """A line, whole among those of other ranks."""
    os.write(1, (text + "\n").encode())


def run(case, calls=0):
    if case == "settings" and os.environ["RANK"] == "1":
        os.environ["COPSE_SAME_BITS"] = "1"
    try:
        dist.init_process_group("copse", timeout=timedelta(seconds=float(os.environ.get("LIMIT", "5"))))
    except dist.DistBackendError as why:
        say("rank %s: %s" % (os.environ["RANK"], why))
        time.sleep(2)  # rank 0 has the store that the others read from
        sys.exit(1)
    rank = dist.get_rank()
    dist.barrier()
    time.sleep(0.5)  # all have left it
    begun = time.time()
    try:
        if case == "kill":
            for i in range(1000000):
                if i == calls and rank == 1:
                    os.kill(os.getpid(), signal.SIGKILL)
                dist.all_reduce(torch.ones(1000))
        elif case == "shape":
            dist.all_reduce(torch.ones(10 + (rank == 1)))
        elif case == "call" and rank == 1:
            dist.all_gather_into_tensor(torch.empty(4 * dist.get_world_size()), torch.ones(4))
        elif case == "call":
            dist.all_reduce(torch.ones(4))
        elif case == "recv" and rank == 0:
            dist.recv(torch.empty(2), 1)
        elif case == "recv":
            time.sleep(7)
    except dist.DistBackendError as why:
        say("rank %d after %.1f s: %s" % (rank, time.time() - begun, why))


def forked(case, calls):
    """What three ranks say."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        os.environ.update(WORLD_SIZE="3", MASTER_ADDR="127.0.0.1", MASTER_PORT=str(free.getsockname()[1]))
    read, write = os.pipe()
    children = []
    for rank in range(3):
        child = os.fork()
        if child == 0:
            os.environ["RANK"] = str(rank)
            os.dup2(write, 1)
            run(case, calls)
            os._exit(0)
        children.append(child)
    os.close(write)
    with os.fdopen(read) as said:
        text = said.read()
    for child in children:
        os.waitpid(child, 0)
    return text


if sys.argv[1] != "kill":
    run(sys.argv[1])
    sys.exit()
draw, jobs, right = random.Random(0), int(sys.argv[2]), 0
for job in range(jobs):
    said = forked("kill", draw.randrange(200))
    if said.count("rank 1 does not answer") == 2:
        right += 1
    else:
        print("job %d: %s" % (job, said), flush=True)
print("right %d" % right)
