# SPDX-License-Identifier: Apache-2.0
"""slipstream.hook: gradient compression under torch's own DistributedDataParallel."""
from functools import partial
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook

from . import _core, _world
from ._core import ConfigError

# What they give back is a mean of gradients, which any optimizer can use. The others move weights themselves.
STRATEGIES = ("ssgd", "topk", "lags", "gtopk", "gs", "sketched", "powersgd")


def _throw(error):
    raise error


class Hook:
    """What hook() returns. `last_step` is the record of the last exchange, as of slipstream.Optimizer; finish() gives the
    exchange back to DDP.

    Every parameter has a shadow: a float32 tensor that a session of Slipstream trains by plain SGD with rate 1, from
    zero in every step. Where it then stands is minus the mean gradient that the strategy came to. So what the strategy
    owes belongs to parameters, however DDP cuts its buckets. Nor does it wait for them to fill: a gradient leaves when
    backward has made it. Only those that DDP found unused come with their bucket."""

    what = "slipstream.hook"
    _must_finish = False  # the script does not know of us

    def __init__(self, ddp, strategy, options):
        self.strategy, self.last_step, self.finished = strategy, {}, False
        self._group = ddp.process_group
        named = [(name, p) for name, p in ddp.module.named_parameters() if p.requires_grad]
        self._numbers = {id(p): number for number, (_, p) in enumerate(named)}
        self._shadows = [
            torch.zeros(p.shape, dtype=torch.float32).requires_grad_() for _, p in named
        ]
        self._promised = []  # buckets of this backward pass: their tensors, and the futures that DDP waits for
        self._left = set()  # the numbers of the parameters whose gradients have left in it
        self._together = False  # this pass ends in an exchange: its forward was not inside DDP's no_sync()
        self._session = _core.Session(
            _world.world(),
            [(name, shadow) for (name, _), shadow in zip(named, self._shadows)],
            [],
            strategy,
            [f"{key}={value}" for key, value in _world.pairs(options)],
            _world.pairs({"optimizer": "sgd", "lr": 1.0, "momentum": 0.0}),
            [],
            lambda: 1.0,
            None,
            False,
        )
        _world._optimizers.add(self)
        self._handles = [ddp.register_forward_pre_hook(self._begin)]
        for number, (_, p) in enumerate(named):
            made = p.register_hook(lambda gradient, number=number, p=p: self._made(number, p, gradient))
            self._handles.append(made)

    def _begin(self, ddp, _inputs):
        self._together = ddp.require_backward_grad_sync and torch.is_grad_enabled()

    def _made(self, number, p, gradient):
        """Backward made a gradient, which is about to be added to what earlier passes left in p.grad."""
        if self._together:
            self._leave(number, gradient if p.grad is None else p.grad + gradient)

    def _leave(self, number, gradient):
        with torch.no_grad():
            self._shadows[number].grad.copy_(gradient)
        self._left.add(number)
        self._session.gradient_ready(number)

    def take(self, bucket):
        """DDP calls it with every bucket of gradients, when the last of them is made."""
        if self.finished:
            return allreduce_hook(self._group, bucket)  # what DDP does by itself
        future = torch.futures.Future()
        try:
            self._take(bucket, future)
        except BaseException as error:  # DDP would make a plain RuntimeError of it; the end of backward does not
            torch.autograd.Variable._execution_engine.queue_callback(partial(_throw, error))
        return future

    def _take(self, bucket, future):
        gradients = list(zip(bucket.gradients(), bucket.parameters()))
        for gradient, p in gradients:
            if self._numbers[id(p)] not in self._left:
                self._leave(self._numbers[id(p)], gradient)
        self._promised.append((bucket.buffer(), gradients, future))
        if bucket.is_last():
            self._exchange()

    def _exchange(self):
        self.last_step = self._session.step(0.0)
        with torch.no_grad():
            for buffer, gradients, future in self._promised:
                for gradient, p in gradients:
                    shadow = self._shadows[self._numbers[id(p)]]
                    gradient.copy_(shadow).neg_()
                    shadow.zero_()
                future.set_result(buffer)
        self._promised = []
        self._left.clear()
        self._together = False  # a backward pass through the module without DDP is none of ours

    def state_dict(self) -> dict:
        """What this rank owes, and the strategy's plans, under a key that names the rank. On all ranks, between steps."""
        return {_world.own_key(): _world.signed(self.strategy, self._running("state_dict()"))}

    def load_state_dict(self, state_dict: dict) -> None:
        """Goes on where state_dict() of the same rank was taken."""
        session = self._running("load_state_dict()")
        session.set_state(list(_world.own_part(state_dict, self.strategy)["state"].items()))

    def finish(self) -> None:
        """From here on DDP exchanges gradients by itself, and another slipstream.Optimizer or hook may be made. What is
        still owed is dropped. On all ranks, between steps; later calls do nothing."""
        if self.finished:
            return
        self._session.finish()
        self.finished = True
        for handle in self._handles:
            handle.remove()

    def _running(self, what):
        if self.finished:
            raise ConfigError(f"{what} after finish(): this hook has ended; call it before")
        return self._session

    def _close(self):
        self._session = None


def hook(ddp: torch.nn.parallel.DistributedDataParallel, strategy: str = "lags", **options: Any) -> Hook:
    """Lets a strategy exchange the gradients of a DistributedDataParallel module; the script stays as it is.

        ddp = DistributedDataParallel(net)
        slipstream.hook(ddp, "lags", density=0.005)

    Strategies that only exchange gradients: ssgd, topk, lags, gtopk, gs, sketched, powersgd. Keyword arguments are the
    strategy's options. The others decide when and how weights move: slipstream.Optimizer is for them, without DDP."""
    if strategy not in STRATEGIES:
        raise ConfigError(
            f"strategy {strategy!r} moves the weights itself, and DDP's hook only exchanges gradients; use one of "
            f"{', '.join(STRATEGIES)}, or slipstream.Optimizer without DDP"
        )
    _world.join()
    if _world.size() != dist.get_world_size(ddp.process_group):
        raise ConfigError(
            f"this DDP module has {dist.get_world_size(ddp.process_group)} ranks and the job of slipstream.join() "
            f"{_world.size()}; they must be the same"
        )
    _world.make_room()
    made = Hook(ddp, strategy, options)
    ddp.register_comm_hook(made, lambda state, bucket: state.take(bucket))
    return made
