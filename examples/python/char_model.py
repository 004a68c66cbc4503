# SPDX-License-Identifier: Apache-2.0
"""A GPT-like character model with AdamW, warm-up and cosine, clipping, bf16 autocast and two micro-batches a step.

    torchrun --standalone --nproc_per_node 2 examples/python/char_model.py --text book.txt
"""
import argparse
import math
from pathlib import Path

import torch
from torch import nn

import slipstream

CONTEXT, WIDTH = 64, 64


class CharModel(nn.Module):
    def __init__(self, characters):
        super().__init__()
        self.token, self.place = nn.Embedding(characters, WIDTH), nn.Embedding(CONTEXT, WIDTH)
        layer = nn.TransformerEncoderLayer(WIDTH, 4, 4 * WIDTH, dropout=0.0, batch_first=True, norm_first=True)
        self.blocks = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.out = nn.Linear(WIDTH, characters, bias=False)
        self.out.weight = self.token.weight  # tied
        self.register_buffer("mask", nn.Transformer.generate_square_subsequent_mask(CONTEXT))

    def forward(self, x):
        return self.out(self.blocks(self.token(x) + self.place.weight, mask=self.mask))


parser = argparse.ArgumentParser()
parser.add_argument("--text", type=Path, default=Path(__file__).resolve().parents[2] / "README.md")
parser.add_argument("--steps", type=int, default=200)
parser.add_argument("--strategy", default="ssgd")
args = parser.parse_args()

slipstream.join()
torch.manual_seed(1)
text = args.text.read_text(encoding="utf-8")
alphabet = {c: i for i, c in enumerate(sorted(set(text)))}
codes = torch.tensor([alphabet[c] for c in text])
net = CharModel(len(alphabet))
opt = torch.optim.AdamW(net.parameters(), lr=3e-3, weight_decay=0.1)
# Gradients leave while backward runs, so that clip_grad_norm_ would come too late: clip_norm does it.
opt = slipstream.Optimizer(opt, net, args.strategy, clip_norm=1.0)
warmup = 10
schedule = torch.optim.lr_scheduler.LambdaLR(
    opt, lambda t: min((t + 1) / warmup, 0.5 + 0.5 * math.cos(math.pi * t / args.steps))
)
mine = torch.Generator().manual_seed(slipstream.rank())


def loss_of_batch():
    starts = torch.randint(len(codes) - CONTEXT - 1, (16, 1), generator=mine)
    window = codes[starts + torch.arange(CONTEXT + 1)]
    with torch.autocast("cpu", dtype=torch.bfloat16):
        logits = net(window[:, :-1])
    return nn.functional.cross_entropy(logits.float().flatten(0, 1), window[:, 1:].flatten())


for step in range(args.steps):
    opt.zero_grad()
    with opt.no_sync():  # all but the last micro-batch only add up
        (loss_of_batch() / 2).backward()
    loss = loss_of_batch()
    (loss / 2).backward()
    opt.step(loss=loss)
    schedule.step()
    if slipstream.rank() == 0 and step % 20 == 0:
        print(f"step {step:4d}  loss {loss.item():.4f}  waited {1e3 * opt.last_step['exposed']:.1f} ms")

opt.finish()
found = "equal" if opt.agreement() else "NOT equal"  # every worker asks
if slipstream.rank() == 0:
    print(f"loss {loss.item():.4f}; the weights are {found} on all {slipstream.size()} workers")
