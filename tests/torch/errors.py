"""What goes wrong in a group, under torchrun's environment: errors.py CASE; every rank prints its exception."""
import os
import signal
import sys
import time
from datetime import timedelta

import torch
import torch.distributed as dist

import copse.torch  # noqa: F401

case = sys.argv[1]
if case == "settings" and os.environ["RANK"] == "1":
    os.environ["COPSE_SAME_BITS"] = "1"
try:
    dist.init_process_group("copse", timeout=timedelta(seconds=float(os.environ.get("LIMIT", "5"))))
except dist.DistBackendError as why:
    print("rank %s: %s" % (os.environ["RANK"], why), flush=True)
    time.sleep(2)  # rank 0 has the store that the others read from
    sys.exit(1)
rank = dist.get_rank()
dist.barrier()
time.sleep(0.5)  # all have left it
begun = time.time()
try:
    if case == "kill":  # rank 1, after as many calls as the second argument says
        for i in range(1000000):
            if i == int(sys.argv[2]) and rank == 1:
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
    print("rank %d after %.1f s: %s" % (rank, time.time() - begun, why), flush=True)
