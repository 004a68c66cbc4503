# SPDX-License-Identifier: Apache-2.0
"""A small image classifier on Fashion-MNIST, made data-parallel by the four lines marked with <--.

    torchrun --standalone --nproc_per_node 2 examples/python/image_classifier.py
"""
import argparse
import gzip
from pathlib import Path

import torch
from torch import nn

import slipstream

DATA = Path("/usr/share/datasets/fashion-mnist")  # where Debian's package dataset-fashion-mnist puts it


def read(name, header):
    with gzip.open(next(DATA.rglob(name + "*")), "rb") as file:
        return torch.frombuffer(bytearray(file.read()[header:]), dtype=torch.uint8)


parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=200)
parser.add_argument("--strategy", default="dasgd")
args = parser.parse_args()

slipstream.join()  # <--
torch.manual_seed(1)
images = read("train-images", 16).view(-1, 1, 28, 28).float() / 255
labels = read("train-labels", 8).long()
net = nn.Sequential(
    nn.Conv2d(1, 16, 5, stride=2), nn.ReLU(), nn.Conv2d(16, 32, 5, stride=2), nn.ReLU(),
    nn.Flatten(), nn.Linear(512, 10)
)
opt = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9)
opt = slipstream.Optimizer(opt, net, args.strategy)  # <--
schedule = torch.optim.lr_scheduler.CosineAnnealingLR(opt, args.steps)
mine = torch.Generator().manual_seed(slipstream.rank())  # <-- another part of the data on every worker

for step in range(args.steps):
    batch = torch.randint(len(images), (64,), generator=mine)
    opt.zero_grad()
    loss = nn.functional.cross_entropy(net(images[batch]), labels[batch])
    loss.backward()
    opt.step(loss=loss)
    schedule.step()
    if slipstream.rank() == 0 and step % 20 == 0:
        print(f"step {step:4d}  loss {loss.item():.4f}  sent {opt.last_step['bytes_sent'] / 1e6:.2f} MB")

opt.finish()  # <--
if slipstream.rank() == 0:
    print(f"loss {loss.item():.4f}; the weights are equal on all {slipstream.size()} workers")
