# SPDX-License-Identifier: Apache-2.0
"""slipstream.Sampler: which samples each worker takes."""
from typing import Iterator

import torch

from . import _core, _world


class Sampler(torch.utils.data.Sampler):
    """This worker's samples of `count`, in batches, for DataLoader(data, batch_sampler=slipstream.Sampler(len(data), 64)).

    Every pass is an epoch with an order of its own, which depends on the seed and the epoch alone: the one of `slipstream
    train`. A step takes the next `batch` times workers of it, each worker its own part, so that no sample comes twice in
    an epoch. What does not fill a step is left out. `set_epoch` chooses where the next pass begins."""

    def __init__(self, count: int, batch: int, seed: int = 1) -> None:
        _world.join()
        self._samples = _core.Sampler(count, batch, _world.rank(), _world.size(), seed)
        self._step, self._epoch = batch * _world.size(), 0

    def set_epoch(self, epoch: int) -> None:
        self._epoch = epoch

    def __len__(self) -> int:
        return self._samples.steps_per_epoch()

    def __iter__(self) -> Iterator[list]:
        epoch, self._epoch = self._epoch, self._epoch + 1
        for step in range(len(self)):
            yield self._samples.batch(epoch, step * self._step)
