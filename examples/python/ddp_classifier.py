# SPDX-License-Identifier: Apache-2.0
"""The image classifier under torch's own DistributedDataParallel, for comparison; the line marked with <-- lets a
strategy of Slipstream exchange the gradients.

    torchrun --standalone --nproc_per_node 2 examples/python/ddp_classifier.py                 # plain DDP
    torchrun --standalone --nproc_per_node 2 examples/python/ddp_classifier.py --hook lags
"""
import argparse
import gzip
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import slipstream

DATA = Path("/usr/share/datasets/fashion-mnist")  # where Debian's package dataset-fashion-mnist puts it


def read(name, header):
    with gzip.open(next(DATA.rglob(name + "*")), "rb") as file:
        return torch.frombuffer(bytearray(file.read()[header:]), dtype=torch.uint8)


parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=200)
parser.add_argument("--hook", choices=slipstream.HOOK_STRATEGIES)
args = parser.parse_args()

dist.init_process_group("gloo")
torch.manual_seed(1)
images = read("train-images", 16).view(-1, 1, 28, 28).float() / 255
labels = read("train-labels", 8).long()
net = nn.Sequential(
    nn.Conv2d(1, 16, 5, stride=2), nn.ReLU(), nn.Conv2d(16, 32, 5, stride=2), nn.ReLU(),
    nn.Flatten(), nn.Linear(512, 10)
)
ddp = DistributedDataParallel(net)
hook = slipstream.hook(ddp, args.hook) if args.hook else None  # <--
opt = torch.optim.SGD(ddp.parameters(), lr=0.05, momentum=0.9)
mine = torch.Generator().manual_seed(dist.get_rank())

for step in range(args.steps):
    batch = torch.randint(len(images), (64,), generator=mine)
    opt.zero_grad()
    loss = nn.functional.cross_entropy(ddp(images[batch]), labels[batch])
    loss.backward()
    opt.step()
    if dist.get_rank() == 0 and step % 20 == 0:
        sent = f"  sent {hook.last_step['bytes_sent'] / 1e6:.2f} MB" if hook else ""
        print(f"step {step:4d}  loss {loss.item():.4f}{sent}")

weights = torch.cat([p.detach().flatten() for p in net.parameters()])
first = weights.clone()
dist.broadcast(first, 0)
same = torch.tensor(float(torch.equal(weights, first)))
dist.all_reduce(same)
if dist.get_rank() == 0 and same == dist.get_world_size():
    print(f"loss {loss.item():.4f}; the weights are equal on all {dist.get_world_size()} workers")
dist.destroy_process_group()
