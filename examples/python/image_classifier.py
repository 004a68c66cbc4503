# SPDX-License-Identifier: Apache-2.0
"""A small image classifier on Fashion-MNIST, made data-parallel by the four lines marked with <--.

    torchrun --standalone --nproc_per_node 2 examples/python/image_classifier.py

With `--strategy ssgd` it ends with the bits of `slipstream train --strategy ssgd` of as many workers, steps and threads.
"""
import argparse
import itertools

import torch
from fashion_mnist import Cnn, training_set
from torch import nn

import slipstream

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=200)
parser.add_argument("--strategy", default="dasgd")
parser.add_argument("--save", help="a file for the weights")
args = parser.parse_args()

slipstream.join()  # <--
data = training_set()
torch.manual_seed(1)
net = Cnn()
opt = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9)
opt = slipstream.Optimizer(opt, net, args.strategy)  # <--
sampler = slipstream.Sampler(len(data), 64)  # <-- another part of the data on every worker
loader = torch.utils.data.DataLoader(data, batch_sampler=sampler)
epochs = itertools.chain.from_iterable(itertools.repeat(loader))

sent = 0
for step, (images, labels) in enumerate(itertools.islice(epochs, args.steps)):
    opt.zero_grad()
    loss = nn.functional.cross_entropy(net(images), labels)
    loss.backward()
    opt.step(loss=loss)
    sent += opt.last_step["bytes_sent"]
    if slipstream.rank() == 0 and (step + 1) % 20 == 0:
        print(f"step {step + 1:4d}  loss {loss.item():.4f}  sent {sent / (step + 1) / 1e6:.2f} MB a step")

opt.finish()  # <--
found = "equal" if opt.agreement() else "NOT equal"  # every worker asks
if slipstream.rank() == 0:
    print(f"loss {loss.item():.4f}; the weights are {found} on all {slipstream.size()} workers")
    if args.save:
        torch.save(net.state_dict(), args.save)
