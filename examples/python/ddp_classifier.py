# SPDX-License-Identifier: Apache-2.0
"""The image classifier under torch's own DistributedDataParallel, for comparison; the line marked with <-- lets a
strategy of Slipstream exchange the gradients.

    torchrun --standalone --nproc_per_node 2 examples/python/ddp_classifier.py                 # plain DDP
    torchrun --standalone --nproc_per_node 2 examples/python/ddp_classifier.py --hook lags
"""
import argparse
import itertools

import torch
import torch.distributed as dist
from fashion_mnist import Cnn, training_set
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import slipstream

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=200)
parser.add_argument("--hook", choices=slipstream.HOOK_STRATEGIES)
parser.add_argument("--save", help="a file for the weights")
args = parser.parse_args()

dist.init_process_group("gloo")
data = training_set()
torch.manual_seed(1)
net = Cnn()
ddp = DistributedDataParallel(net)
hook = slipstream.hook(ddp, args.hook) if args.hook else None  # <--
opt = torch.optim.SGD(ddp.parameters(), lr=0.05, momentum=0.9)
loader = torch.utils.data.DataLoader(data, batch_sampler=slipstream.Sampler(len(data), 64))
epochs = itertools.chain.from_iterable(itertools.repeat(loader))

for step, (images, labels) in enumerate(itertools.islice(epochs, args.steps)):
    opt.zero_grad()
    loss = nn.functional.cross_entropy(ddp(images), labels)
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
found = "equal" if same == dist.get_world_size() else "NOT equal"
if dist.get_rank() == 0:
    print(f"loss {loss.item():.4f}; the weights are {found} on all {dist.get_world_size()} workers")
    if args.save:
        torch.save(net.state_dict(), args.save)
dist.destroy_process_group()
