# SPDX-License-Identifier: Apache-2.0
"""slipstream.Optimizer: a torch optimizer whose step() is taken together with the other workers."""
import contextlib
import difflib
import inspect
import weakref
from typing import Any, Callable, Iterator, Optional

import torch

from . import _core, _world
from ._core import ConfigError

# The optimizers we have rules for: our name, the options that go over, and those we only know in one value.
_KINDS = {
    torch.optim.SGD: ("sgd", ("momentum", "nesterov"), {"dampening": 0, "maximize": False}),
    torch.optim.Adam: ("adam", ("betas", "eps"), {"amsgrad": False, "maximize": False}),
    torch.optim.AdamW: ("adamw", ("betas", "eps"), {"amsgrad": False, "maximize": False}),
}


def _translated(inner):
    """The inner optimizer's options in our names, or None where only its own step() can do what it does. Rate and decay
    are each group's own; they are in _groups()."""
    if type(inner) not in _KINDS:
        return None
    kind, used, must_be = _KINDS[type(inner)]
    first = inner.param_groups[0]
    for group in inner.param_groups:
        if any(group.get(key, value) != value for key, value in must_be.items()):
            return None
        if group.get("decoupled_weight_decay", kind == "adamw") != (kind == "adamw"):
            return None
        if any(group[key] != first[key] for key in used):
            return None
    options = {"optimizer": kind, "weight_decay": first["weight_decay"]}
    for key in used:
        if key == "betas":
            options["beta1"], options["beta2"] = map(float, first["betas"])
        else:
            options[key] = first[key]
    return options


def _decays(inner):
    return [group.get("weight_decay") for group in inner.param_groups]


def _counts(inner):
    return [len(group["params"]) for group in inner.param_groups]


def _require_one_pass(inner):
    """An optimizer whose step() must be given a closure runs backward in it, as often as it likes."""
    closure = inspect.signature(type(inner).step).parameters.get("closure")
    if closure is not None and closure.default is inspect.Parameter.empty:
        raise ConfigError(
            f"{type(inner).__name__} evaluates a closure several times in a step, and workers exchange gradients once in a "
            "step; use an optimizer that takes the gradients of one backward pass, such as SGD or AdamW"
        )


def _naming_own_keywords(error, options):
    """The error with the nearest of our own keywords, where it is about one that the strategy does not have."""
    for key in options:
        near = difflib.get_close_matches(key, ("clip_norm", "overlap", "own_step", "stage"), 1, 0.55)
        if near and f"'{key}'" in str(error) and "option" in str(error):
            return ConfigError(f"{error}; of slipstream.Optimizer's own keywords '{near[0]}' is the nearest")
    return error


_CARRIED = "slipstream"  # in the first group of a state_dict(): survives load_state_dict() of the wrapped optimizer


class Optimizer(torch.optim.Optimizer):
    """Trains `module` by `optimizer` together with the other workers of the job.

    It is a torch.optim.Optimizer and shares param_groups and state with the one it wraps, so learning-rate
    schedulers take either. Keyword arguments are the options of the strategy (`help(slipstream.strategies.dasgd)`).

    strategy   a name from `python -m slipstream list`
    clip_norm  longest gradient a step may use. Strategies that send during backward need it instead of
               clip_grad_norm_, which comes too late there and is refused; around backward, `with opt.no_sync():`
               makes gradients leave in step(), and clip_grad_norm_ work
    overlap    False: gradients leave in step() and not while backward runs. clip_grad_norm_ and several backward passes
               then work as without Slipstream, and nothing hides behind backward
    own_step   True: the wrapped optimizer's own step() moves the weights. Default: only where Slipstream has no
               rule of its own, which it has for SGD, Adam and AdamW. Strategies that send gradients in parts
               (lags, gs, ssd, osp …) need those
    stage      parameters that are bfloat16, float16 or on another device are trained through float32 masters on the
               CPU: gradients are copied there, weights back. True: all are. Load weights into the module before
    """

    what = "slipstream.Optimizer"
    _must_finish = True  # before the process ends, or the others are told

    def __init__(
        self,
        optimizer: torch.optim.Optimizer,
        module: torch.nn.Module,
        strategy: str = "ssgd",
        *,
        clip_norm: float = 0.0,
        overlap: bool = True,
        own_step: Optional[bool] = None,
        stage: bool = False,
        **options: Any,
    ) -> None:
        if isinstance(optimizer, Optimizer):
            raise ConfigError("the optimizer is a slipstream.Optimizer already; give it the one of torch")
        _require_one_pass(optimizer)
        self._check_parameters(optimizer, module)
        rule = None if own_step else _translated(optimizer)
        if rule is None and own_step is False:
            raise ConfigError(f"Slipstream has no rule of its own for {type(optimizer).__name__} with these options")
        super().__init__(optimizer.param_groups, optimizer.defaults)
        self.param_groups, self.state = optimizer.param_groups, optimizer.state
        self.optimizer, self.strategy, self.last_step = optimizer, strategy, {}
        self.finished, self._averaged = False, False
        self._rule, self._decay, self._count = rule, _decays(optimizer), _counts(optimizer)
        self._trained = [(name, p, p.requires_grad) for name, p in module.named_parameters()]
        self._factors = self._rate_factors(1.0)
        world = _world.world()
        _world.make_room()
        follow_rates = weakref.WeakMethod(self._follow_rates)  # the session must not keep its owner alive
        try:
            self._session = _core.Session(
                world,
                [(name, p) for name, p in module.named_parameters()],
                [(name, b) for name, b in module.named_buffers()],
                strategy,
                [f"{key}={value}" for key, value in _world.pairs(options)],
                _world.pairs({**(rule or {}), "lr": self._lr(), "clip_norm": clip_norm}),
                self._groups(module) if rule is not None else [],
                lambda: follow_rates()(),
                None if rule is not None else lambda: optimizer.step(),
                stage,
            )
        except ConfigError as error:
            raise _naming_own_keywords(error, options) from None
        self._holds = not overlap
        self._session.hold(self._holds)
        _world._optimizers.add(self)
        carried = optimizer.param_groups[0].pop(_CARRIED, None)
        self.resumed = carried is not None  # the wrapped optimizer was given a state of ours before
        if carried is not None:
            self._go_on(carried)

    @staticmethod
    def _check_parameters(optimizer, module):
        held = {id(p) for group in optimizer.param_groups for p in group["params"]}
        for name, p in module.named_parameters():
            if p.requires_grad and id(p) not in held:
                raise ConfigError(f"parameter '{name}' is not in the optimizer; add it, or freeze it by requires_grad_")
        if not held <= {id(p) for p in module.parameters()}:
            raise ConfigError("the optimizer holds a parameter that is not the module's; give the module that has all")

    def _lr(self):
        """The largest of the groups' rates; the others are shares of it."""
        return max(float(group["lr"]) for group in self.param_groups)

    def _rate_factors(self, of_nothing):
        largest = self._lr()
        return [float(group["lr"]) / largest if largest > 0 else of_nothing for group in self.param_groups]

    def _groups(self, module):
        """Where there are several, each with its rate and decay."""
        if len(self.param_groups) == 1:
            return []
        names = {id(p): name for name, p in module.named_parameters() if p.requires_grad}
        return [
            _core.ParameterGroup([names[id(p)] for p in group["params"] if id(p) in names], factor, group["weight_decay"])
            for group, factor in zip(self.param_groups, self._factors)
        ]

    def _follow_rates(self):
        """What Slipstream asks at the beginning of every step: a scheduler may have changed the rates."""
        if self._rule is not None and hasattr(self, "_session"):
            factors = self._rate_factors(None)
            for number, factor in enumerate(factors):
                if factor is not None and factor != self._factors[number] and len(factors) > 1:
                    self._session.set_lr_factor(number, factor)
                    self._factors[number] = factor
        return self._lr()

    def _require_the_same_rule(self):
        if _translated(self.optimizer) != self._rule or _decays(self.optimizer) != self._decay:
            raise ConfigError(
                "an option of the optimizer other than lr was changed after Slipstream had begun; only lr may change. "
                "OneCycleLR and CyclicLR change momentum or betas: give them cycle_momentum=False, or Optimizer own_step=True"
            )

    def _require_the_same_parameters(self):
        if _counts(self.optimizer) != self._count:
            raise ConfigError(
                "the wrapped optimizer's parameters were changed after Slipstream had begun (add_param_group?); call "
                "finish() and make a new slipstream.Optimizer"
            )
        for name, p, trained in self._trained:
            if p.requires_grad != trained:
                raise ConfigError(
                    f"parameter '{name}' was {'frozen' if trained else 'unfrozen'} by requires_grad after Slipstream had "
                    "begun; call finish(), change it on all ranks, and make a new slipstream.Optimizer"
                )

    def _running(self, what):
        """The session, for what is only possible while it trains."""
        if self.finished or self._session is None:
            raise ConfigError(
                f"{what} after finish(): this slipstream.Optimizer has ended; make a new one to train on, and take "
                "state_dict() before finish()"
            )
        if self._averaged:
            raise ConfigError(f"{what} inside `with opt.average():`, where the weights are not this rank's own; call it after")
        return self._session

    def step(self, closure: Optional[Callable[[], Any]] = None, *, loss: Any = None) -> Any:
        """Takes a step with the other workers. `loss` (or the closure's) lets all of them stop where it is not
        finite; the strategy "osp" follows it. Returns the closure's loss."""
        session = self._running("step()")
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        if loss is None and self.strategy == "osp":
            raise ConfigError('strategy "osp" follows the loss: call opt.step(loss=loss)')
        self._require_the_same_parameters()
        if self._rule is not None:
            self._require_the_same_rule()
        told = loss.detach() if isinstance(loss, torch.Tensor) else loss
        self.last_step = session.step(0.0 if told is None else float(told))
        # Schedulers of the wrapped optimizer look whether it has stepped: torch 1.13 at a count, torch 2 at a mark.
        self.optimizer._step_count = getattr(self.optimizer, "_step_count", 0) + 1
        self.optimizer._opt_called = True
        if loss is None:
            self.last_step["loss"] = None
        return loss if closure is not None else None

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Forgets gradients since the last step, which zeroes its own. They stay views of one buffer: never None"""
        if self._session is None:
            super().zero_grad(set_to_none)
        else:
            self._session.zero_grad()

    @contextlib.contextmanager
    def no_sync(self) -> Iterator[None]:
        """Backward passes inside only add up; gradients leave in the next one outside, or in step()."""
        session = self._running("no_sync()")
        session.hold(True)
        try:
            yield
        finally:
            session.hold(self._holds)

    @contextlib.contextmanager
    def average(self) -> Iterator[None]:
        """Inside, the module holds the mean over all ranks, weights and buffers: one model to evaluate or save in
        mid-training. Afterwards each rank has its own again. On all ranks, between steps."""
        session = self._running("average()")
        session.average(True)
        self._averaged = True
        try:
            yield
        finally:
            self._averaged = False
            session.average(False)

    def join(self) -> None:
        """No more data on this rank for now: takes part in the others' steps until they have none, either, or have called
        it, too. Then all are at the same step and may go on, with an evaluation or the next epoch."""
        self._running("join()").join()

    def finish(self) -> None:
        """No more data on this rank: takes part in the others' steps until they have none, then leaves equal weights
        and averaged buffers on all ranks. Later calls do nothing."""
        if self.finished:
            return
        self._running("finish()").finish()
        self.finished = True

    def agreement(self) -> bool:
        """Are the weights bit-identical on all ranks? On all ranks, between steps or after finish()."""
        session = self._session if self.finished else self._running("agreement()")
        if session is None:
            raise ConfigError("agreement() after the next slipstream.Optimizer was made; ask before")
        return session.agreement()

    def state_dict(self) -> dict:
        """This rank's own state: weights, the strategy's part, the wrapped optimizer's. On all ranks, between steps.

        The wrapped optimizer can load it as well, with the groups alone: what is ours is in the first of them, and the next
        slipstream.Optimizer around it goes on from there. So does a Trainer that loads before it wraps. Keys have the
        rank, so that torch.distributed.checkpoint takes no rank's tensors for another's."""
        session = self._running("state_dict()")
        state = self.optimizer.state_dict()
        inner, state["state"] = state["state"], {}
        ours = {
            "inner": {str(number): value for number, value in inner.items()},
            "inner_count": len(inner),
            **_world.signed(self.strategy, session),
        }
        state["param_groups"][0][_CARRIED] = {_world.own_key(): ours}
        return state

    def load_state_dict(self, state_dict: dict) -> None:
        """Goes on, bit for bit, where state_dict() of the same rank was taken; also sets the parameters."""
        self._running("load_state_dict()")
        groups = [dict(group) for group in state_dict["param_groups"]]
        carried = groups[0].pop(_CARRIED, None)
        if carried is None:
            raise ConfigError(
                "this state was not saved by slipstream.Optimizer; load it into the wrapped optimizer before "
                "slipstream.Optimizer is made, or begin anew with the weights alone"
            )
        ours = _world.own_part(carried, self.strategy)
        self._load_inner(ours, groups)
        self._session.set_state(list(ours["state"].items()))

    def _go_on(self, carried):
        """The same where the wrapped optimizer has loaded its groups already."""
        ours = _world.own_part(carried, self.strategy)
        self._load_inner(ours, self.optimizer.state_dict()["param_groups"])
        self._session.set_state(list(ours["state"].items()))

    def _load_inner(self, ours, groups):
        if len(ours["inner"]) != ours["inner_count"]:
            raise ConfigError(
                f"the wrapped optimizer's own state was saved for {ours['inner_count']} parameters and came for "
                f"{len(ours['inner'])}: torch.distributed.checkpoint only loads what is there before; take state_dict() "
                "with torch.save and torch.load instead"
            )
        self.optimizer.load_state_dict({"state": {int(n): v for n, v in ours["inner"].items()}, "param_groups": groups})
        self.param_groups, self.state = self.optimizer.param_groups, self.optimizer.state

    def add_param_group(self, param_group):
        if hasattr(self, "_session"):
            raise ConfigError("parameters cannot be added to a job that runs; make a new slipstream.Optimizer")
        super().add_param_group(param_group)

    def __reduce_ex__(self, protocol):
        raise ConfigError(
            "a slipstream.Optimizer cannot be copied or pickled: it is this process's part of a job that runs; keep its "
            "state_dict(), and give it to load_state_dict() of another one"
        )

    def __repr__(self):
        return f"slipstream.Optimizer(strategy={self.strategy!r}, {self.optimizer!r})"

    def _close(self):
        self._session = None
