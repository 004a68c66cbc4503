#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""The peer: what a user would run today. PyTorch DistributedDataParallel over Gloo on Fashion-MNIST.

Same models, batch, optimizer and thread count as `slipstream train --task fashion-mnist`. One process is one worker;
RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT say which (as `slipstream lab` or torchrun set them), and
GLOO_SOCKET_IFNAME picks the interface. Rank 0 prints one JSON line. Needs Debian's python3-torch and
dataset-fashion-mnist.
"""
import argparse
import copy
import gzip
import json
import os
import statistics
import sys
import time

os.environ["OMP_NUM_THREADS"] = os.environ["OPENBLAS_NUM_THREADS"] = "1"  # before torch reads them

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook
from torch.nn.parallel import DistributedDataParallel

BATCH = 64
MEAN, DEVIATION = 72.940, 90.021  # of the training images' bytes
HOOKS = ("none", "fp16", "powersgd1", "powersgd4")
OURS = {"hook-": "slipstream.hook under DDP", "python-": "slipstream.Optimizer in the place of DDP"}


def read_idx(folder, name, header_bytes):
    """The values of a gzipped IDX file as a flat byte tensor."""
    path = os.path.join(folder, name)
    try:
        with gzip.open(path) as file:
            data = bytearray(file.read())
    except OSError as error:
        sys.exit(f"cannot read {path}: {error}; install Debian's package dataset-fashion-mnist or give --data FOLDER")
    return torch.frombuffer(data, dtype=torch.uint8)[header_bytes:]


def make_model(name):
    if name == "mlp":
        return nn.Sequential(nn.Flatten(), nn.Linear(784, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU(),
                             nn.Linear(1024, 10))
    return nn.Sequential(nn.Conv2d(1, 32, 5, padding=2), nn.MaxPool2d(2), nn.ReLU(),
                         nn.Conv2d(32, 64, 5, padding=2), nn.MaxPool2d(2), nn.ReLU(),
                         nn.Flatten(), nn.Linear(3136, 512), nn.ReLU(), nn.Linear(512, 10))


def batches(folder, rank, size):
    """Endless batches of this rank's share, in an order all ranks agree on."""
    images = read_idx(folder, "train-images-idx3-ubyte.gz", 16).view(-1, 1, 28, 28)
    labels = read_idx(folder, "train-labels-idx1-ubyte.gz", 8)
    order = torch.Generator().manual_seed(1)
    while True:
        mine = torch.randperm(len(labels), generator=order)[rank::size]
        for at in range(0, len(mine) - BATCH + 1, BATCH):
            chosen = mine[at:at + BATCH]
            yield images[chosen].float().sub_(MEAN).div_(DEVIATION), labels[chosen].long()


def sgd(model):
    return torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)


def train(model, optimizer, data, warmup, steps):
    """Milliseconds of each step after the warm-up, and the last loss."""
    milliseconds = []
    for step in range(warmup + steps):
        images, labels = next(data)
        start = time.perf_counter()
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(images), labels)
        loss.backward()
        optimizer.step()
        if step >= warmup:
            milliseconds.append(1000 * (time.perf_counter() - start))
    return milliseconds, loss.item()


def wrap(model, hook, bucket_mb):
    if bucket_mb:
        dist._DEFAULT_FIRST_BUCKET_BYTES = bucket_mb << 20  # DDP has no public way to move its first bucket's 1 MB
    model = DistributedDataParallel(model, bucket_cap_mb=bucket_mb or 25)
    if hook == "fp16":
        model.register_comm_hook(None, default_hooks.fp16_compress_hook)
    elif hook.startswith("powersgd"):
        state = powerSGD_hook.PowerSGDState(process_group=None, matrix_approximation_rank=int(hook[8:]),
                                            start_powerSGD_iter=2)
        model.register_comm_hook(state, powerSGD_hook.powerSGD_hook)
    elif hook.startswith("hook-"):
        import slipstream
        slipstream.hook(model, hook[5:])
    return model


def contender(model, hook, bucket_mb):
    """What is trained, and by which optimizer."""
    if hook.startswith("python-"):
        import slipstream
        return model, slipstream.Optimizer(sgd(model), model, hook[7:])
    wrapped = wrap(model, hook, bucket_mb)
    return wrapped, sgd(wrapped)


def known_hook(text):
    if text not in HOOKS and not text.startswith(tuple(OURS)):
        raise argparse.ArgumentTypeError(f"{text} is none of {', '.join(HOOKS)}, hook-STRATEGY, python-STRATEGY")
    return text


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", choices=("mlp", "cnn"), default="cnn")
    parser.add_argument("--steps", type=int, default=50, help="measured steps")
    parser.add_argument("--warmup", type=int, default=5, help="steps before them, at least 3: DDP rebuilds its buckets")
    parser.add_argument("--hook", type=known_hook, default="none", help=f"DDP's communication hook: {', '.join(HOOKS)}; "
                        + "; ".join(f"{name}STRATEGY: {what}" for name, what in OURS.items()))
    parser.add_argument("--bucket-mb", type=int, default=0, help="size of all DDP buckets, default DDP's own (1, then "
                        "25); large enough for one bucket it keeps PowerSGD over Gloo from aborting")
    parser.add_argument("--no-ddp", action="store_true", help="one process alone: the baseline")
    parser.add_argument("--data", default="/usr/share/datasets/fashion-mnist")
    args = parser.parse_args()
    if args.steps < 1 or args.warmup < 3:
        parser.error("--steps must be at least 1 and --warmup at least 3")

    torch.set_num_threads(1)
    torch.manual_seed(1)
    rank, size = 0, 1
    if not args.no_ddp:
        dist.init_process_group("gloo")
        rank, size = dist.get_rank(), dist.get_world_size()
    data = batches(args.data, rank, size)
    next(data)  # unpacks the files, outside of every measurement
    model = make_model(args.model)

    # Compute alone, with the other ranks computing at the same time as they do later.
    if not args.no_ddp:
        dist.barrier()
    alone = copy.deepcopy(model)
    compute, loss = train(alone, sgd(alone), data, args.warmup, min(args.steps, 50))
    measured = compute
    if not args.no_ddp:
        dist.barrier()
        measured, loss = train(*contender(model, args.hook, args.bucket_mb), data, args.warmup, args.steps)
    if rank == 0:
        print(json.dumps({
            "peer": "single" if args.no_ddp else f"ddp-{args.hook}", "torch": torch.__version__, "model": args.model,
            "parameters": sum(p.numel() for p in model.parameters()), "workers": size, "steps": len(measured),
            "step_ms_median": round(statistics.median(measured), 3),
            "compute_ms_median": round(statistics.median(compute), 3),
            "samples_per_second": round(1000 * BATCH * size * len(measured) / sum(measured), 2),
            "final_loss": round(loss, 4)}), flush=True)
    if not args.no_ddp:
        dist.barrier()  # rank 0 holds the store: nobody leaves before all are done
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
