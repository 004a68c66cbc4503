# SPDX-License-Identifier: Apache-2.0
"""Fashion-MNIST and a small convolutional net, for the two image classifiers beside this file. Both are those of `slipstream
train`, to the bit, so that the scripts' results can be compared with the program's."""
import gzip
import math
from pathlib import Path

import torch
from torch import nn

DATA = Path("/usr/share/datasets/fashion-mnist")  # where Debian's package dataset-fashion-mnist puts it


def _read(name, header):
    with gzip.open(next(DATA.rglob(name + "*")), "rb") as file:
        return torch.frombuffer(bytearray(file.read()[header:]), dtype=torch.uint8)


def training_set():
    """Images of mean 0 and deviation 1, with their labels."""
    pixels = _read("train-images", 16)
    counts = torch.bincount(pixels, minlength=256)
    values = torch.arange(256)
    mean = (counts * values).sum().item() / len(pixels)
    deviation = math.sqrt((counts * values * values).sum().item() / len(pixels) - mean * mean)
    images = pixels.view(-1, 1, 28, 28).float().mul_(1 / deviation).add_(-mean / deviation)
    return torch.utils.data.TensorDataset(images, _read("train-labels", 8).long())


class Cnn(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Conv2d(1, 32, 5, padding=2)
        self.second = nn.Conv2d(32, 64, 5, padding=2)
        self.hidden = nn.Linear(64 * 7 * 7, 512)
        self.last = nn.Linear(512, 10)

    def forward(self, x):
        x = torch.relu(torch.max_pool2d(self.first(x), 2))
        x = torch.relu(torch.max_pool2d(self.second(x), 2))
        return self.last(torch.relu(self.hidden(x.flatten(1))))
