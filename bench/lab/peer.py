#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""The peers of `slipstream compare`: what a user would run today. PyTorch's DistributedDataParallel over Gloo, and programs
that average weights every few steps: torchft's LocalSGD and DiLoCo, hivemind's Optimizer.

Takes the flags of `slipstream train` that it knows and refuses the others: the same samples in the same order, the same
first weights (where both are of the same torch), batch, optimizer, schedule and thread count. One process is one
worker; RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT say which (as `slipstream lab` or torchrun set them), and
GLOO_SOCKET_IFNAME picks the interface. Rank 0 prints one JSON line. Statistics leave out the first five steps, as
Slipstream's do.

The periodic ones need `pip install torchft-nightly` or `hivemind` beside torch; keep pip from replacing torch with a
constraints file.
"""
import argparse
import contextlib
import copy
import gzip
import json
import math
import os
import socket
import statistics
import struct
import sys
import time
from datetime import timedelta

os.environ["OMP_NUM_THREADS"] = os.environ["OPENBLAS_NUM_THREADS"] = "1"  # before torch reads them
os.environ["USE_LIBUV"] = "0"  # Debian 13 builds torch without libuv, and torch does not look

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook
from torch.nn.parallel import DistributedDataParallel

SKIPPED = 5  # first steps, which are not like the others: DDP rebuilds its buckets in them
FASHION_MNIST = "/usr/share/datasets/fashion-mnist"
HOOKS = ("none", "fp16", "powersgd1", "powersgd4")
PATIENCE = timedelta(seconds=60)  # of the periodic ones, with each other
MATCHMAKING_S = 5  # that hivemind looks for peers before an average; its guide names 3 to 5 for local runs
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
    """Images normalised by the mean and deviation of the training bytes. The metric is the share that is right."""
    metric = "test_accuracy"

    def __init__(self, args):
        self.args = args
        parts = [[read_idx(args.data or FASHION_MNIST, f"{part}-{kind}-idx{dimensions}-ubyte", dimensions)
                  for kind, dimensions in (("images", 3), ("labels", 1))] for part in ("train", "t10k")]
        self.train, self.test = parts
        self.count = len(self.train[1])
        values = self.train[0].double()
        self.mean, self.deviation = values.mean().item(), values.std(unbiased=False).item()

    def batch(self, chosen, epoch):
        return self.gather(self.train, chosen)

    def tests(self, rank, size):
        for chosen in torch.arange(rank, len(self.test[1]), size).split(250):
            yield self.gather(self.test, chosen)

    def gather(self, part, chosen):
        pixels = part[0][chosen].unsqueeze(1).float()
        return pixels.mul_(1 / self.deviation).add_(-self.mean / self.deviation), part[1][chosen].long()

    def make_model(self):
        height, width = self.train[0].shape[1:]
        classes = int(self.train[1].max()) + 1
        if self.args.model == "mlp":
            return nn.Sequential(nn.Flatten(), nn.Linear(height * width, 1024), nn.ReLU(), nn.Linear(1024, 1024),
                                 nn.ReLU(), nn.Linear(1024, classes))
        return nn.Sequential(nn.Conv2d(1, 32, 5, padding=2), nn.MaxPool2d(2), nn.ReLU(),
                             nn.Conv2d(32, 64, 5, padding=2), nn.MaxPool2d(2), nn.ReLU(),
                             nn.Flatten(), nn.Linear(64 * (height // 4) * (width // 4), 512), nn.ReLU(),
                             nn.Linear(512, classes))


class Text:
    """Windows of characters, cut at another offset in every epoch. The metric is the mean loss of the last tenth."""
    metric = "test_loss"

    def __init__(self, args):
        self.args = args
        with open(args.data, encoding="utf-8", newline="") as file:
            text = file.read()
        vocabulary = {symbol: token for token, symbol in enumerate(sorted(set(text)))}
        tokens = torch.tensor([vocabulary[symbol] for symbol in text])
        self.symbols, cut = len(vocabulary), len(text) - len(text) // 10
        self.train, self.test = tokens[:cut], tokens[cut:]
        self.count = (len(self.train) - args.context) // args.context

    def batch(self, chosen, epoch):
        offset = (Random(self.args.seed, epoch, 2).next() * self.args.context) >> 64
        return self.windows(self.train, offset + chosen * self.args.context)

    def tests(self, rank, size):
        for chosen in torch.arange(rank, (len(self.test) - 1) // self.args.context, size).split(64):
            yield self.windows(self.test, chosen * self.args.context)

    def windows(self, tokens, starts):
        rows = tokens[starts[:, None] + torch.arange(self.args.context + 1)]
        return rows[:, :-1], rows[:, 1:].flatten()

    def make_model(self):
        return Transformer(self.symbols, self.args)


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norm1 = nn.LayerNorm(width)
        self.query_key_value = nn.Linear(width, 3 * width)
        self.attended = nn.Linear(width, width)
        self.norm2 = nn.LayerNorm(width)
        self.wide = nn.Linear(width, 4 * width)
        self.narrow = nn.Linear(4 * width, width)

    def forward(self, x, future):
        n, length, width = x.shape
        parts = self.query_key_value(self.norm1(x)).view(n, length, 3, self.heads, width // self.heads)
        query, key, value = parts.permute(2, 0, 3, 1, 4)
        scores = (query @ key.transpose(2, 3) / math.sqrt(width // self.heads)).masked_fill(future, -math.inf)
        mixed = torch.softmax(scores, -1) @ value
        x = x + self.attended(mixed.transpose(1, 2).reshape(n, length, width))
        return x + self.narrow(nn.functional.gelu(self.wide(self.norm2(x))))


class Transformer(nn.Module):
    """That of src/task/models.cc; parts are made in the same order, so that the same seed draws the same weights."""

    def __init__(self, symbols, args):
        super().__init__()
        self.symbols = nn.Embedding(symbols, args.width)
        self.positions = nn.Embedding(args.context, args.width)
        norm, head = nn.LayerNorm(args.width), nn.Linear(args.width, symbols, bias=False)
        self.blocks = nn.ModuleList(Block(args.width, args.heads) for _ in range(args.depth))
        self.norm, self.head = norm, head
        self.future = torch.ones(args.context, args.context, dtype=torch.bool).triu(1)
        with torch.no_grad():
            for name, parameter in self.named_parameters():
                if parameter.dim() == 2:
                    parameter.normal_(0, 0.02)
                if name.endswith("bias"):
                    parameter.zero_()
            for block in self.blocks:
                for layer in (block.attended, block.narrow):
                    layer.weight.mul_(1 / math.sqrt(2 * args.depth))

    def forward(self, tokens):
        x = self.symbols(tokens) + self.positions(torch.arange(tokens.shape[1]))
        for block in self.blocks:
            x = block(x, self.future)
        return self.head(self.norm(x)).flatten(0, 1)


def mix(x):
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & WORD
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & WORD
    return x ^ (x >> 31)


class Random:
    """The generator of src/base/rng.h."""

    def __init__(self, seed, *parts):
        key = mix((seed + GOLDEN) & WORD)
        for n, part in enumerate((*parts, *(0,) * (3 - len(parts)))):
            key = mix((key if n == 0 else (key + GOLDEN) & WORD) ^ part)
        self.key, self.count = key, 0

    def next(self):
        self.count += 1
        return mix((self.key + GOLDEN * self.count) & WORD)


def epoch_order(count, seed, epoch):
    """The order of an epoch's samples: that of src/task/sampler.cc."""
    random, order = Random(seed, epoch, 1), list(range(count))
    for i in range(count - 1, 0, -1):
        at = (random.next() * (i + 1)) >> 64
        order[i], order[at] = order[at], order[i]
    return torch.tensor(order)


def batches(data, args, rank, size):
    """Endless batches of this rank: of every global batch the rank-th part."""
    together = args.batch * size
    if together > data.count:
        sys.exit(f"error: --batch {args.batch} for each of {size} workers does not fit {data.count} samples")
    epoch = 0
    while True:
        order = epoch_order(data.count, args.seed, epoch)
        for first in range(0, data.count - together + 1, together):
            yield data.batch(order[first + rank * args.batch:first + (rank + 1) * args.batch], epoch)
        epoch += 1


def make_optimizer(args, model):
    """Of a model, or of a list of parameters."""
    parameters = model.parameters() if isinstance(model, nn.Module) else model
    rate = args.lr or (0.05 if args.optimizer == "sgd" else 0.001)
    if args.optimizer == "sgd":
        return torch.optim.SGD(parameters, lr=rate, momentum=args.momentum, nesterov=args.nesterov,
                               weight_decay=args.weight_decay)
    kind = torch.optim.AdamW if args.optimizer == "adamw" else torch.optim.Adam
    return kind(parameters, lr=rate, betas=(args.beta1, args.beta2), eps=args.eps,
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


def evaluate(model, data, rank, size):
    """The metric of the test set; every rank looks at a part of it, with its own weights."""
    model.eval()
    total = torch.zeros(3, dtype=torch.float64)  # right, summed loss, all
    with torch.no_grad():
        for inputs, targets in data.tests(rank, size):
            logits = model(inputs)
            total[0] += (logits.argmax(1) == targets).sum()
            total[1] += nn.functional.cross_entropy(logits, targets, reduction="sum")
            total[2] += len(targets)
    model.train()
    dist.all_reduce(total)
    return (total[0 if data.metric == "test_accuracy" else 1] / total[2]).item()


def train(model, optimizer, samples, args, steps, evaluated=None):
    """Milliseconds of every step, its losses, and evaluations as [step, seconds, value]."""
    milliseconds, losses, evaluations = [], [], []
    seconds, base = 0.0, [group["lr"] for group in optimizer.param_groups]
    start = time.perf_counter()
    for step in range(steps):
        inputs, targets = next(samples)
        for group, rate in zip(optimizer.param_groups, base):
            group["lr"] = rate_at(args, step, steps, rate)
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(inputs), targets)
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


def own_address():
    """The address from which this process reaches rank 0."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect((os.environ["MASTER_ADDR"], 9))
        return probe.getsockname()[0]


def torchft_manager(model, optimizer, kept):
    """A replica of torchft: each process is a group of its own. Rank 0 has the lighthouse, where they meet."""
    socket.gethostname = own_address  # torchft tells others the host's name, which need not be one in the lab
    from torchft import Manager, ProcessGroupGloo
    from torchft.coordination import LighthouseServer

    address, port = own_address(), int(os.environ["MASTER_PORT"]) + 1
    if dist.get_rank() == 0:
        kept.append(LighthouseServer(bind=f"[::]:{port}", min_replicas=dist.get_world_size(), join_timeout_ms=1000))
    dist.barrier()
    kept.append(dist.TCPStore(address, 0, is_master=True, wait_for_workers=False))
    return Manager(
        pg=ProcessGroupGloo(timeout=PATIENCE), min_replica_size=dist.get_world_size(), use_async_quorum=False,
        load_state_dict=lambda state: (model.load_state_dict(state[0]), optimizer.load_state_dict(state[1])),
        state_dict=lambda: [model.state_dict(), optimizer.state_dict()], rank=0, world_size=1, store_addr=address,
        store_port=kept[-1].port, lighthouse_addr=f"http://{os.environ['MASTER_ADDR']}:{port}",
        replica_id=f"peer{dist.get_rank()}", init_sync=False, timeout=PATIENCE)


def torchft_local(args, model, kept):
    from torchft.local_sgd import LocalSGD

    optimizer = make_optimizer(args, model)
    manager = torchft_manager(model, optimizer, kept)
    kept.append(LocalSGD(manager, model, optimizer, args.period).__enter__())
    return optimizer, manager.shutdown


def torchft_diloco(args, model, kept):
    from torchft.local_sgd import DiLoCo

    optimizer = make_optimizer(args, model)
    outer = torch.optim.SGD(model.parameters(), lr=0.7, momentum=0.9, nesterov=True)
    manager = torchft_manager(model, optimizer, kept)
    kept.append(DiLoCo(manager, [model], optimizer, outer, args.period, pin_memory=False,
                       use_bucketization=True).__enter__())
    return optimizer, manager.shutdown


def hivemind_local(args, model, kept):
    """Local steps, averaged in the background whenever all peers together have taken `period` batches each."""
    import hivemind

    meeting = [None]
    host = [f"/ip4/{own_address()}/tcp/0"]
    if dist.get_rank() == 0:
        kept.append(hivemind.DHT(host_maddrs=host, start=True))
        meeting = [[str(address) for address in kept[-1].get_visible_maddrs()]]
    dist.broadcast_object_list(meeting)
    if dist.get_rank() != 0:
        kept.append(hivemind.DHT(host_maddrs=host, initial_peers=meeting[0], start=True))
    optimizer = hivemind.Optimizer(
        dht=kept[-1], run_id="lab", batch_size_per_step=args.batch,
        target_batch_size=args.batch * dist.get_world_size() * args.period, params=model.parameters(),
        optimizer=lambda parameters: make_optimizer(args, parameters), use_local_updates=True,
        matchmaking_time=MATCHMAKING_S, averaging_timeout=PATIENCE.total_seconds(),
        averager_opts={"request_timeout": MATCHMAKING_S / 3})
    return optimizer, lambda: (optimizer.shutdown(), kept[-1].shutdown())  # processes of their own


PERIODIC = {"torchft-local": torchft_local, "torchft-diloco": torchft_diloco, "hivemind": hivemind_local}


def contender(args, model, kept):
    """What is trained, by which optimizer, and what to call at the end. `kept` holds what must outlive the training."""
    if args.hook in PERIODIC:
        return model, *PERIODIC[args.hook](args, model, kept)
    if args.hook.startswith("python-"):
        import slipstream
        optimizer = slipstream.Optimizer(make_optimizer(args, model), model, args.hook[7:])
        return model, optimizer, optimizer.finish
    wrapped = wrap(model, args.hook, args.bucket_mb)
    return wrapped, make_optimizer(args, wrapped), contextlib.nullcontext


def known_hook(text):
    if text not in (*HOOKS, *PERIODIC) and not text.startswith(tuple(OURS)):
        raise argparse.ArgumentTypeError(f"{text} is none of {', '.join((*HOOKS, *PERIODIC))}, hook-STRATEGY, "
                                         "python-STRATEGY")
    return text


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter,
                                     allow_abbrev=False)
    parser.add_argument("--hook", type=known_hook, default="none",
                        help=f"DDP's communication hook: {', '.join(HOOKS)}; in the place of DDP: {', '.join(PERIODIC)}; "
                        + "; ".join(f"{name}STRATEGY: {what}" for name, what in OURS.items()))
    parser.add_argument("--period", type=int, default=8, help="steps between two averages of the periodic ones")
    parser.add_argument("--bucket-mb", type=int, default=0, help="size of all DDP buckets, default DDP's own (1, then "
                        "25); large enough for one bucket it keeps PowerSGD over Gloo from aborting")
    as_train = parser.add_argument_group("as `slipstream train` takes them")
    as_train.add_argument("--task", choices=("fashion-mnist", "images", "text"), default="fashion-mnist")
    as_train.add_argument("--data", default="")
    as_train.add_argument("--model", choices=("mlp", "cnn", "transformer"))
    as_train.add_argument("--optimizer", choices=("sgd", "adam", "adamw"), default="sgd")
    as_train.add_argument("--nesterov", action="store_true")
    as_train.add_argument("--lr-schedule", choices=("constant", "step", "cosine"), default="constant")
    for name, kind, default in (("seed", int, 1), ("steps", int, 0), ("epochs", int, 1), ("batch", int, 64),
                                ("width", int, 128), ("depth", int, 2), ("heads", int, 4),
                                ("context", int, 64),
                                ("eval-every", int, 0), ("trace-steps", int, 0), ("lr", float, 0.0),
                                ("momentum", float, 0.9),
                                ("weight-decay", float, 0.0), ("beta1", float, 0.9), ("beta2", float, 0.999),
                                ("eps", float, 1e-8), ("clip-norm", float, 0.0), ("lr-warmup-steps", int, 0),
                                ("lr-step-every", int, 1), ("lr-step-gamma", float, 0.1), ("lr-final", float, 0.0)):
        as_train.add_argument("--" + name, type=kind, default=default)
    args = parser.parse_args()
    args.model = args.model or ("transformer" if args.task == "text" else "cnn")
    if (args.model == "transformer") != (args.task == "text"):
        parser.error(f"--model {args.model} is not for --task {args.task}")
    return args


def main():
    args = parse()
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank, size = dist.get_rank(), dist.get_world_size()
    data = (Text if args.task == "text" else Images)(args)
    steps = args.steps or args.epochs * (data.count // (args.batch * size))
    torch.manual_seed(args.seed)
    model = data.make_model()
    next(batches(data, args, rank, size))  # so that nothing is done for the first time below

    # Compute alone, with the other ranks computing at the same time as they do later.
    dist.barrier()
    alone = copy.deepcopy(model)
    compute, _, _ = train(alone, make_optimizer(args, alone), batches(data, args, rank, size), args, min(steps, 30))
    dist.barrier()
    kept = []
    trained, optimizer, finish = contender(args, model, kept)
    milliseconds, losses, evaluations = train(trained, optimizer, batches(data, args, rank, size), args, steps,
                                              lambda: evaluate(model, data, rank, size))
    finish()
    result = evaluate(model, data, rank, size)
    mean = torch.tensor(losses, dtype=torch.float64)
    dist.all_reduce(mean)
    losses = (mean / size).tolist()
    seconds = sum(milliseconds) / 1000
    counted = milliseconds[SKIPPED:] if steps > SKIPPED else milliseconds
    if args.hook in PERIODIC and len(counted) > args.period:
        counted = counted[len(counted) % args.period:]  # whole periods
    if rank == 0:
        past, curve = 0.0, []
        for step, (ms, loss) in enumerate(zip(milliseconds, losses), start=1):
            past += ms / 1000
            curve.append([step, round(past, 4), round(loss, 5) if math.isfinite(loss) else None])
        print(json.dumps({
            "peer": args.hook if args.hook in PERIODIC else f"ddp-{args.hook}", "torch": torch.__version__,
            "task": args.task, "model": args.model,
            "parameters": sum(p.numel() for p in model.parameters()), "workers": size, "batch": args.batch,
            "steps": steps, "seed": args.seed, "wall_seconds": round(seconds, 3),
            "step_ms_median": round(statistics.median(counted), 3),
            "compute_ms_median": round(statistics.median(compute[SKIPPED:] or compute), 3),
            "samples_per_second": round(1000 * args.batch * size * len(counted) / sum(counted), 2),
            "final_loss": losses[-1] if math.isfinite(losses[-1]) else None, data.metric: result,
            "evaluations": evaluations + [[steps, seconds, result]], "losses": curve}), flush=True)
    dist.barrier()  # rank 0 holds the store: nobody leaves before all are done
    sys.stdout.flush()
    os._exit(0)  # taking Gloo down in order sometimes never ends


if __name__ == "__main__":
    main()
