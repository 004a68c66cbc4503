# SPDX-License-Identifier: Apache-2.0
"""A Lightning module that Slipstream trains on several workers, by the two lines marked with <--. Needs `pip install
lightning`.

    torchrun --standalone --nproc_per_node 2 examples/python/lightning_module.py
"""
import argparse

import torch
from torch import nn

import slipstream

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=100)
args = parser.parse_args()
slipstream.join(hide=True)  # <-- before Lightning is imported: it must not distribute the job as well

import lightning.pytorch as pl  # noqa: E402


class Largest(pl.LightningModule):
    """Learns which of its ten inputs is the largest."""

    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(10, 64), nn.ReLU(), nn.Linear(64, 10))

    def training_step(self, batch, _):
        x, y = batch
        return nn.functional.cross_entropy(self.net(x), y)

    def configure_optimizers(self):
        opt = torch.optim.AdamW(self.parameters(), lr=3e-3)
        return [opt], [torch.optim.lr_scheduler.CosineAnnealingLR(opt, args.steps)]


torch.manual_seed(slipstream.rank())  # every worker has its own part of the data
x = torch.randn(64 * args.steps, 10)
data = torch.utils.data.TensorDataset(x, x.argmax(1))
module = Largest()
callback = slipstream.Callback("lags")  # <--
trainer = pl.Trainer(
    accelerator="cpu", devices=1, max_steps=args.steps, gradient_clip_val=1.0, logger=False,
    enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False,
    callbacks=[callback],
)
trainer.fit(module, torch.utils.data.DataLoader(data, batch_size=64))
found = "equal" if callback.optimizer.agreement() else "NOT equal"  # every worker asks
if slipstream.rank() == 0:
    right = (module.net(x).argmax(1) == x.argmax(1)).float().mean()
    print(f"{100 * right:.1f} % right; the weights are {found} on all {slipstream.size()} workers")
