#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""The peer of `slipstream compare`: what a user would run today, PyTorch's DistributedDataParallel over Gloo.

Takes the flags of `slipstream train` that it knows and refuses the others: the same images in the same order, the same
first weights (where both are of the same torch), batch, optimizer, schedule and thread count. One process is one worker;
RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT say which (as `slipstream lab` or torchrun set them), and
GLOO_SOCKET_IFNAME picks the interface. Rank 0 prints one JSON line. Statistics leave out the first five steps, as
Slipstream's do.
"""
import argparse
import contextlib
import copy
import gzip
import json
import math
import os
import statistics
import struct
import sys
import time

os.environ["OMP_NUM_THREADS"] = os.environ["OPENBLAS_NUM_THREADS"] = "1"  # before torch reads them

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook
from torch.nn.parallel import DistributedDataParallel

SKIPPED = 5  # first steps, which are not like the others: DDP rebuilds its buckets in them
FASHION_MNIST = "/usr/share/datasets/fashion-mnist"
HOOKS = ("none", "fp16", "powersgd1", "powersgd4")
OURS = {"hook-": "slipstream.hook under DDP", "python-": "slipstream.Optimizer in the place of DDP"}
WORD = (1 << 64) - 1
GOLDEN = 0x9E3779B97F4A7C15


def read_idx(folder, name, dimensions):
    """An IDX file, gzipped or not, as a byte tensor."""
    path = os.path.join(folder, name)
    opener, path = (open, path) if os.path.exists(path) else (gzip.open, path + ".gz")
    try:
        with opener(path, "rb") as file:
            data = bytearray(file.read())
    except OSError as error:
        sys.exit(f"error: cannot read {path}: {error}; install dataset-fashion-mnist or give --data FOLDER")
    shape = struct.unpack(f">{dimensions}I", data[4:4 + 4 * dimensions])
    return torch.frombuffer(data, dtype=torch.uint8)[4 + 4 * dimensions:].view(shape)


class Images:
    """The train and test set, normalised by the mean and deviation of the training bytes."""

    def __init__(self, folder):
        self.train, self.train_labels = read_idx(folder, "train-images-idx3-ubyte", 3), read_idx(folder, "train-labels-idx1-ubyte", 1)
        self.test, self.test_labels = read_idx(folder, "t10k-images-idx3-ubyte", 3), read_idx(folder, "t10k-labels-idx1-ubyte", 1)
        values = self.train.double()
        self.mean, self.deviation = values.mean().item(), values.std(unbiased=False).item()

    def batch(self, images, labels, chosen):
        pixels = images[chosen].unsqueeze(1).float()
        return pixels.mul_(1 / self.deviation).add_(-self.mean / self.deviation), labels[chosen].long()


def mix(x):
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & WORD
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & WORD
    return x ^ (x >> 31)


def epoch_order(count, seed, epoch):
    """The order of an epoch's samples: that of src/task/sampler.cc."""
    key = mix(mix((seed + GOLDEN) & WORD) ^ epoch)
    for part in (1, 0):
        key = mix(((key + GOLDEN) & WORD) ^ part)
    order = list(range(count))
    for n, i in enumerate(range(count - 1, 0, -1), start=1):
        at = (mix((key + GOLDEN * n) & WORD) * (i + 1)) >> 64
        order[i], order[at] = order[at], order[i]
    return torch.tensor(order)


def batches(images, args, rank, size):
    """Endless batches of this rank: of every global batch the rank-th part."""
    count, together = len(images.train_labels), args.batch * size
    if together > count:
        sys.exit(f"error: --batch {args.batch} for each of {size} workers does not fit {count} samples")
    epoch = 0
    while True:
        order = epoch_order(count, args.seed, epoch)
        for first in range(0, count - together + 1, together):
            chosen = order[first + rank * args.batch:first + (rank + 1) * args.batch]
            yield images.batch(images.train, images.train_labels, chosen)
        epoch += 1


def make_model(name, images, seed):
    torch.manual_seed(seed)
    height, width = images.train.shape[1:]
    classes = int(images.train_labels.max()) + 1
    if name == "mlp":
        return nn.Sequential(nn.Flatten(), nn.Linear(height * width, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU(),
                             nn.Linear(1024, classes))
    return nn.Sequential(nn.Conv2d(1, 32, 5, padding=2), nn.MaxPool2d(2), nn.ReLU(),
                         nn.Conv2d(32, 64, 5, padding=2), nn.MaxPool2d(2), nn.ReLU(),
                         nn.Flatten(), nn.Linear(64 * (height // 4) * (width // 4), 512), nn.ReLU(),
                         nn.Linear(512, classes))


def make_optimizer(args, model):
    rate = args.lr or (0.05 if args.optimizer == "sgd" else 0.001)
    if args.optimizer == "sgd":
        return torch.optim.SGD(model.parameters(), lr=rate, momentum=args.momentum, nesterov=args.nesterov,
                               weight_decay=args.weight_decay)
    kind = torch.optim.AdamW if args.optimizer == "adamw" else torch.optim.Adam
    return kind(model.parameters(), lr=rate, betas=(args.beta1, args.beta2), eps=args.eps,
                weight_decay=args.weight_decay)


def rate_at(args, step, steps, base):
    """As src/schedule/lr_schedule.cc has it."""
    if step < args.lr_warmup_steps:
        return base * (step + 1) / args.lr_warmup_steps
    if args.lr_schedule == "step":
        return base * args.lr_step_gamma ** (step // args.lr_step_every)
    if args.lr_schedule == "cosine":
        way = (step - args.lr_warmup_steps) / max(1, steps - args.lr_warmup_steps)
        return args.lr_final + (base - args.lr_final) * 0.5 * (1 + math.cos(math.pi * way))
    return base


def evaluate(model, images, rank, size):
    """The share of the test set that is right; every rank looks at a part of it, with its own weights."""
    model.eval()
    right = 0
    with torch.no_grad():
        for chosen in torch.arange(rank, len(images.test_labels), size).split(250):
            pixels, labels = images.batch(images.test, images.test_labels, chosen)
            right += (model(pixels).argmax(1) == labels).sum()
    model.train()
    total = torch.as_tensor(right, dtype=torch.int64).reshape(1)
    dist.all_reduce(total)
    return total.item() / len(images.test_labels)


def train(model, optimizer, data, args, steps, evaluated=None):
    """Milliseconds of every step, its losses, and evaluations as [step, seconds, value]."""
    milliseconds, losses, evaluations = [], [], []
    seconds, base = 0.0, [group["lr"] for group in optimizer.param_groups]
    start = time.perf_counter()
    for step in range(steps):
        pixels, labels = next(data)
        for group, rate in zip(optimizer.param_groups, base):
            group["lr"] = rate_at(args, step, steps, rate)
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(pixels), labels)
        loss.backward()
        if args.clip_norm > 0:
            nn.utils.clip_grad_norm_(model.parameters(), args.clip_norm)
        optimizer.step()
        losses.append(loss.item())
        now = time.perf_counter()
        milliseconds.append(1000 * (now - start))
        seconds += now - start
        if evaluated and args.eval_every and (step + 1) % args.eval_every == 0 and step + 1 < steps:
            evaluations.append([step + 1, seconds, evaluated()])
            now = time.perf_counter()
        start = now
    return milliseconds, losses, evaluations


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


def contender(args, model):
    """What is trained, by which optimizer, and what to call at the end."""
    if args.hook.startswith("python-"):
        import slipstream
        optimizer = slipstream.Optimizer(make_optimizer(args, model), model, args.hook[7:])
        return model, optimizer, optimizer.finish
    wrapped = wrap(model, args.hook, args.bucket_mb)
    return wrapped, make_optimizer(args, wrapped), contextlib.nullcontext


def known_hook(text):
    if text not in HOOKS and not text.startswith(tuple(OURS)):
        raise argparse.ArgumentTypeError(f"{text} is none of {', '.join(HOOKS)}, hook-STRATEGY, python-STRATEGY")
    return text


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False)
    parser.add_argument("--hook", type=known_hook, default="none", help=f"DDP's communication hook: {', '.join(HOOKS)}; "
                        + "; ".join(f"{name}STRATEGY: {what}" for name, what in OURS.items()))
    parser.add_argument("--bucket-mb", type=int, default=0, help="size of all DDP buckets, default DDP's own (1, then "
                        "25); large enough for one bucket it keeps PowerSGD over Gloo from aborting")
    as_train = parser.add_argument_group("as `slipstream train` takes them")
    as_train.add_argument("--task", choices=("fashion-mnist", "images"), default="fashion-mnist")
    as_train.add_argument("--data", default=FASHION_MNIST)
    as_train.add_argument("--model", choices=("mlp", "cnn"), default="cnn")
    as_train.add_argument("--optimizer", choices=("sgd", "adam", "adamw"), default="sgd")
    as_train.add_argument("--nesterov", action="store_true")
    as_train.add_argument("--lr-schedule", choices=("constant", "step", "cosine"), default="constant")
    for name, kind, default in (("seed", int, 1), ("steps", int, 0), ("epochs", int, 1), ("batch", int, 64),
                                ("eval-every", int, 0), ("trace-steps", int, 0), ("lr", float, 0.0), ("momentum", float, 0.9),
                                ("weight-decay", float, 0.0), ("beta1", float, 0.9), ("beta2", float, 0.999),
                                ("eps", float, 1e-8), ("clip-norm", float, 0.0), ("lr-warmup-steps", int, 0),
                                ("lr-step-every", int, 1), ("lr-step-gamma", float, 0.1), ("lr-final", float, 0.0)):
        as_train.add_argument("--" + name, type=kind, default=default)
    return parser.parse_args()


def main():
    args = parse()
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank, size = dist.get_rank(), dist.get_world_size()
    images = Images(args.data)
    steps = args.steps or args.epochs * (len(images.train_labels) // (args.batch * size))
    model = make_model(args.model, images, args.seed)
    next(batches(images, args, rank, size))  # so that nothing is done for the first time below

    # Compute alone, with the other ranks computing at the same time as they do later.
    dist.barrier()
    alone = copy.deepcopy(model)
    compute, _, _ = train(alone, make_optimizer(args, alone), batches(images, args, rank, size), args, min(steps, 30))
    dist.barrier()
    trained, optimizer, finish = contender(args, model)
    milliseconds, losses, evaluations = train(trained, optimizer, batches(images, args, rank, size), args, steps,
                                              lambda: evaluate(model, images, rank, size))
    finish()
    accuracy = evaluate(model, images, rank, size)
    seconds = sum(milliseconds) / 1000
    counted = milliseconds[SKIPPED:] if steps > SKIPPED else milliseconds
    if rank == 0:
        past, curve = 0.0, []
        for step, (ms, loss) in enumerate(zip(milliseconds, losses), start=1):
            past += ms / 1000
            curve.append([step, round(past, 4), round(loss, 5) if math.isfinite(loss) else None])
        print(json.dumps({
            "peer": f"ddp-{args.hook}", "torch": torch.__version__, "task": args.task, "model": args.model,
            "parameters": sum(p.numel() for p in model.parameters()), "workers": size, "batch": args.batch,
            "steps": steps, "seed": args.seed, "wall_seconds": round(seconds, 3),
            "step_ms_median": round(statistics.median(counted), 3),
            "compute_ms_median": round(statistics.median(compute[SKIPPED:] or compute), 3),
            "samples_per_second": round(1000 * args.batch * size * len(counted) / sum(counted), 2),
            "final_loss": losses[-1] if math.isfinite(losses[-1]) else None, "test_accuracy": accuracy,
            "evaluations": evaluations + [[steps, seconds, accuracy]], "losses": curve}), flush=True)
    dist.barrier()  # rank 0 holds the store: nobody leaves before all are done
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
