"""Small trainings on CPU, under torchrun: train.py BACKEND MODEL (ddp, fsdp or moe). Rank 0 prints the losses' bits."""
import sys

import torch
import torch.distributed as dist
from torch import nn

backend, what = sys.argv[1:3]
if "copse" in backend:
    import copse.torch  # noqa: F401
torch.set_num_threads(1)
dist.init_process_group(backend)
rank, size = dist.get_rank(), dist.get_world_size()


class Exchange(torch.autograd.Function):
    """Rows to the ranks of their experts, and their gradients back."""

    @staticmethod
    def forward(ctx, rows, send, receive):
        ctx.sizes = send, receive
        out = rows.new_empty((sum(receive), rows.shape[1]))
        dist.all_to_all_single(out, rows.contiguous(), receive, send)
        return out

    @staticmethod
    def backward(ctx, grad):
        send, receive = ctx.sizes
        back = grad.new_empty((sum(send), grad.shape[1]))
        dist.all_to_all_single(back, grad.contiguous(), send, receive)
        return back, None, None


class Experts(nn.Module):
    """An expert a rank, a router of one choice: dispatch and combine are uneven all-to-alls."""

    def __init__(self, width):
        super().__init__()
        self.router = nn.Linear(width, size, bias=False)
        torch.manual_seed(1 + rank)
        self.expert = nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width))

    def forward(self, x):
        weight, choice = self.router(x).softmax(-1).max(-1)
        order = choice.argsort(stable=True)
        send = torch.bincount(choice, minlength=size)
        receive = torch.empty_like(send)
        dist.all_to_all_single(receive, send)
        sizes = send.tolist(), receive.tolist()
        done = Exchange.apply(self.expert(Exchange.apply(x[order], *sizes)), *sizes[::-1])
        out = torch.zeros_like(x).index_copy(0, order, done)
        return x + weight[:, None] * out


torch.manual_seed(0)
width = 32
if what == "moe":
    model = nn.Sequential(nn.Linear(16, width), Experts(width), nn.Linear(width, 1))
    shared = [p for n, p in model.named_parameters() if ".expert." not in n]
    for p in shared:
        dist.broadcast(p.data, 0)
else:
    model = nn.Sequential(nn.Linear(16, width), nn.GELU(), nn.Linear(width, width), nn.GELU(), nn.Linear(width, 1))
if what == "ddp":
    model = nn.parallel.DistributedDataParallel(model, bucket_cap_mb=0.002)
if what == "fsdp":
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard
    mesh = init_device_mesh("cpu", (size,))
    for layer in model:
        if isinstance(layer, nn.Linear):
            fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
data = torch.Generator().manual_seed(100 + rank)
for step in range(20):
    x = torch.randn(24, 16, generator=data)
    loss = nn.functional.mse_loss(model(x), x.sin().sum(1, keepdim=True))
    optimizer.zero_grad()
    loss.backward()
    if what == "moe":
        for p in shared:
            dist.all_reduce(p.grad)
            p.grad /= size
    optimizer.step()
    total = loss.detach().clone()
    dist.all_reduce(total)
    if rank == 0:
        print((total / size).item().hex(), flush=True)
dist.destroy_process_group()
