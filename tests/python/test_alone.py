# SPDX-License-Identifier: Apache-2.0
"""One process, one worker: what slipstream.Optimizer is to a loop that knows torch only."""
import copy
import gc
import pickle
import warnings
import weakref

import pytest
import torch

import slipstream


def make_net():
    torch.manual_seed(3)
    return torch.nn.Sequential(torch.nn.Linear(6, 16), torch.nn.Tanh(), torch.nn.Linear(16, 4))


def loss_of(net, step):
    g = torch.Generator().manual_seed(step)
    return net(torch.randn(8, 6, generator=g)).square().sum()


def train(net, opt, steps, schedule=None):
    for step in range(steps):
        opt.zero_grad()
        loss_of(net, step).backward()
        opt.step()
        if schedule:
            schedule.step()


def difference(a, b):
    return max((p - q).abs().max().item() for p, q in zip(a.parameters(), b.parameters()))


OPTIMIZERS = {
    "sgd": lambda p: torch.optim.SGD(p, lr=0.01, momentum=0.9, nesterov=True, weight_decay=0.01),
    "adam": lambda p: torch.optim.Adam(p, lr=0.01, betas=(0.8, 0.95), weight_decay=0.01),
    "adamw": lambda p: torch.optim.AdamW(p, lr=0.01),
    "rmsprop, by its own step": lambda p: torch.optim.RMSprop(p, lr=0.01),
    "amsgrad, by its own step": lambda p: torch.optim.Adam(p, lr=0.01, amsgrad=True),
}


@pytest.mark.parametrize("make", OPTIMIZERS.values(), ids=OPTIMIZERS.keys())
def test_alone_it_steps_as_the_optimizer_it_wraps_with_a_schedule(make):
    bare, net = make_net(), make_net()
    plain = make(bare.parameters())
    train(bare, plain, 12, torch.optim.lr_scheduler.CosineAnnealingLR(plain, 12))
    opt = slipstream.Optimizer(make(net.parameters()), net, "ssgd")
    train(net, opt, 12, torch.optim.lr_scheduler.CosineAnnealingLR(opt, 12))
    opt.finish()
    assert difference(bare, net) < 1e-5
    assert difference(bare, make_net()) > 1e-2


def test_it_is_an_optimizer_that_shares_groups_and_state():
    net = make_net()
    inner = torch.optim.AdamW(net.parameters(), lr=0.01)
    opt = slipstream.Optimizer(inner, net)
    assert isinstance(opt, torch.optim.Optimizer)
    assert opt.param_groups is inner.param_groups and opt.state is inner.state
    inner.param_groups[0]["lr"] = 0.5
    train(net, opt, 1)
    assert opt.last_step["lr"] == 0.5 and opt.last_step["step"] == 0 and opt.last_step["loss"] is None


def test_an_unknown_keyword_names_the_nearest():
    net = make_net()
    with pytest.raises(slipstream.ConfigError, match="period"):
        slipstream.Optimizer(torch.optim.SGD(net.parameters(), lr=0.1), net, "dasgd", perod=8)
    with pytest.raises(slipstream.ConfigError, match="dasgd"):
        slipstream.Optimizer(torch.optim.SGD(net.parameters(), lr=0.1), net, "dasg")


def test_an_optimizer_of_another_kind_is_refused_where_the_strategy_moves_the_weights():
    net = make_net()
    with pytest.raises(slipstream.ConfigError, match="sgd, adam or adamw"):
        slipstream.Optimizer(torch.optim.RMSprop(net.parameters()), net, "lags")


def groups_of(net):
    return [
        {"params": [p for p in net.parameters() if p.dim() > 1], "weight_decay": 0.1},
        {"params": [p for p in net.parameters() if p.dim() == 1], "weight_decay": 0.0, "lr": 0.003},
    ]


@pytest.mark.parametrize("own_step", [None, True])
def test_groups_keep_their_rate_and_decay_under_a_schedule_of_their_own(own_step):
    bare, net = make_net(), make_net()
    plain = torch.optim.AdamW(groups_of(bare), lr=0.01)
    opt = slipstream.Optimizer(torch.optim.AdamW(groups_of(net), lr=0.01), net, own_step=own_step)
    rates = [lambda step: 1 / (1 + step), lambda step: 1.0]
    train(bare, plain, 8, torch.optim.lr_scheduler.LambdaLR(plain, rates))
    train(net, opt, 8, torch.optim.lr_scheduler.LambdaLR(opt, rates))
    assert difference(bare, net) < 1e-6
    assert difference(bare, make_net()) > 1e-2


def test_a_parameter_that_nobody_trains_is_named():
    net = make_net()
    with pytest.raises(slipstream.ConfigError, match="'2.weight'"):
        slipstream.Optimizer(torch.optim.SGD(net[0].parameters(), lr=0.1), net)
    net[2].requires_grad_(False)
    opt = slipstream.Optimizer(torch.optim.SGD(net[0].parameters(), lr=0.1), net)
    before = net[2].weight.clone()
    train(net, opt, 2)
    assert torch.equal(net[2].weight, before)


def test_gradients_add_up_in_no_sync_and_survive_the_modules_zero_grad():
    bare, net = make_net(), make_net()
    plain = torch.optim.SGD(bare.parameters(), lr=0.01)
    opt = slipstream.Optimizer(torch.optim.SGD(net.parameters(), lr=0.01), net, "ssgd")
    for step in range(4):
        for n in (bare, net):
            n.zero_grad()  # to None
        loss_of(bare, step).backward()
        loss_of(bare, step + 50).backward()
        with opt.no_sync():
            loss_of(net, step).backward()
        loss_of(net, step + 50).backward()
        plain.step()
        opt.step()
    assert difference(bare, net) < 1e-6


def test_clip_grad_norm_works_in_no_sync():
    bare, net = make_net(), make_net()
    plain = torch.optim.SGD(bare.parameters(), lr=0.01)
    opt = slipstream.Optimizer(torch.optim.SGD(net.parameters(), lr=0.01), net, "ssgd")
    for step in range(4):
        plain.zero_grad()
        opt.zero_grad()
        loss_of(bare, step).backward()
        with opt.no_sync():
            loss_of(net, step).backward()
        for n in (bare, net):
            torch.nn.utils.clip_grad_norm_(n.parameters(), 0.1)
        plain.step()
        opt.step()
    assert difference(bare, net) < 1e-6


def test_other_options_than_the_rate_must_not_change():
    net = make_net()
    opt = slipstream.Optimizer(torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.9), net)
    opt.param_groups[0]["momentum"] = 0.5
    with pytest.raises(slipstream.ConfigError, match="only lr may change"):
        train(net, opt, 1)


def test_a_loss_that_is_not_finite_stops_training():
    net = make_net()
    opt = slipstream.Optimizer(torch.optim.SGD(net.parameters(), lr=0.01), net)
    with pytest.raises(slipstream.DivergedError, match="not a finite number"):
        for step in range(3):
            loss_of(net, step).backward()
            opt.step(loss=float("nan"))
        opt.finish()


def test_osp_asks_for_the_loss():
    net = make_net()
    opt = slipstream.Optimizer(torch.optim.SGD(net.parameters(), lr=0.01), net, "osp")
    loss_of(net, 0).backward()
    with pytest.raises(slipstream.ConfigError, match="loss=loss"):
        opt.step()
    opt.step(loss=1.0)
    opt.finish()


def test_bf16_autocast_trains():
    net = make_net()
    opt = slipstream.Optimizer(torch.optim.AdamW(net.parameters(), lr=0.01), net)
    first = loss_of(net, 0).item()
    for step in range(20):
        opt.zero_grad()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = loss_of(net, 0)
        loss.float().backward()
        opt.step(loss=loss)
    assert loss_of(net, 0).item() < first / 2


def test_an_optimizer_that_nobody_needs_goes_and_leaves_the_module_as_it_was():
    net = make_net()
    opt = slipstream.Optimizer(torch.optim.SGD(net.parameters(), lr=0.01), net)
    train(net, opt, 2)
    alive, before = weakref.ref(opt), net[0].weight.clone()
    del opt
    gc.collect()
    assert alive() is None
    assert torch.equal(net[0].weight, before)
    loss_of(net, 0).backward()
    assert net[0].weight.grad.abs().sum() > 0


@pytest.mark.parametrize("option", ["elastic", "max_restarts", "chaos", "chaos_seed", "servers"])
def test_join_refuses_by_name_what_would_do_nothing(option):
    with pytest.raises(slipstream.ConfigError, match=rf"join\({option}=…\) would do nothing: .*; leave it out"):
        slipstream.join(**{option: 1})


def test_a_second_join_with_other_options_is_refused():
    slipstream.join()
    slipstream.join()
    with pytest.raises(slipstream.ConfigError, match=r"has joined its job already, with other options \(none\)"):
        slipstream.join(timeout=60)


def test_documentation_is_there():
    assert "period" in slipstream.strategies.dasgd.__doc__
    assert "overlap_local" in dir(slipstream.strategies)
    assert slipstream.__version__ in slipstream.about()
    with pytest.raises(AttributeError, match="lags"):
        slipstream.strategies.nothing


def test_an_error_in_backward_keeps_its_type_and_names_no_sync():
    net = make_net()
    opt = slipstream.Optimizer(torch.optim.SGD(net.parameters(), lr=0.01), net, "ssgd")
    loss_of(net, 0).backward()
    loss_of(net, 1).backward()
    with pytest.raises(slipstream.ConfigError, match=r"second gradient.*opt\.no_sync\(\)"):
        opt.step()
    with pytest.raises(slipstream.ConfigError, match="second gradient"):
        opt.finish()


def test_after_finish_a_second_one_is_harmless_and_the_rest_says_so():
    net = make_net()
    opt = slipstream.Optimizer(torch.optim.SGD(net.parameters(), lr=0.01), net, "lags")
    train(net, opt, 2)
    saved = opt.state_dict()
    opt.finish()
    before = net[0].weight.clone()
    for closed in (False, True):
        opt.finish()
        for late in (opt.step, opt.state_dict, opt.join, lambda: opt.load_state_dict(saved)):
            with pytest.raises(slipstream.ConfigError, match=r"after finish\(\)"):
                late()
        for context in (opt.no_sync, opt.average):
            with pytest.raises(slipstream.ConfigError, match=r"after finish\(\)"), context():
                pass
        loss_of(net, 0).backward()
        opt.zero_grad()
        assert all(p.grad is None or not p.grad.any() for p in net.parameters())
        if not closed:
            assert opt.agreement()
            slipstream.Optimizer(torch.optim.SGD(net.parameters(), lr=0.01), net).finish()  # closes the first one
    with pytest.raises(slipstream.ConfigError, match="ask before"):
        opt.agreement()
    assert torch.equal(net[0].weight, before)


@pytest.mark.parametrize("make", [copy.deepcopy, copy.copy, pickle.dumps])
def test_a_copy_is_refused_with_what_to_do(make):
    net = make_net()
    opt = slipstream.Optimizer(torch.optim.SGD(net.parameters(), lr=0.01), net)
    with pytest.raises(slipstream.ConfigError, match=r"state_dict\(\)"):
        make(opt)


def test_inside_average_nothing_else_is_taken():
    net = make_net()
    opt = slipstream.Optimizer(torch.optim.SGD(net.parameters(), lr=0.01), net)
    train(net, opt, 1)
    with opt.average():
        for wrong in (opt.step, opt.state_dict, opt.finish, opt.join):
            with pytest.raises(slipstream.ConfigError, match="inside `with opt.average"):
                wrong()
    train(net, opt, 1)
    opt.finish()


def test_parameters_that_change_after_the_beginning_are_refused_by_name():
    net = make_net()
    net[0].bias.requires_grad_(False)
    inner = torch.optim.SGD(net.parameters(), lr=0.01)
    opt = slipstream.Optimizer(inner, net)
    net[2].weight.requires_grad_(False)
    loss_of(net, 0).backward()
    with pytest.raises(slipstream.ConfigError, match="'2.weight' was frozen"):
        opt.step()
    net[2].weight.requires_grad_(True)
    net[0].bias.requires_grad_(True)
    with pytest.raises(slipstream.ConfigError, match="'0.bias' was unfrozen"):
        opt.step()
    net[0].bias.requires_grad_(False)
    opt.step()
    inner.add_param_group({"params": [torch.zeros(3, requires_grad=True)]})
    with pytest.raises(slipstream.ConfigError, match="add_param_group"):
        opt.step()


def test_tied_weights_train_as_without_slipstream():
    def tied():
        torch.manual_seed(4)
        net = torch.nn.Sequential(torch.nn.Linear(6, 6), torch.nn.Tanh(), torch.nn.Linear(6, 6))
        net[2].weight = net[0].weight
        return net

    bare, net = tied(), tied()
    train(bare, torch.optim.AdamW(bare.parameters(), lr=0.01), 6)
    opt = slipstream.Optimizer(torch.optim.AdamW(net.parameters(), lr=0.01), net, "dasgd")
    train(net, opt, 6)
    opt.finish()
    assert net[2].weight is net[0].weight
    assert difference(bare, net) < 1e-5 < difference(bare, tied())


def test_a_state_of_another_rank_strategy_or_number_of_workers_is_refused_by_name():
    def made(strategy="lags"):
        net = make_net()
        return slipstream.Optimizer(torch.optim.SGD(net.parameters(), lr=0.01), net, strategy)

    def state(**changes):
        saved = made().state_dict()
        part = saved["param_groups"][0]["slipstream"]
        part["rank0"].update(changes)
        return saved, part

    saved, part = state()
    assert list(part) == ["rank0"] and part["rank0"]["rank"] == 0 and part["rank0"]["world_size"] == 1
    made().load_state_dict(saved)
    part["rank3"] = part.pop("rank0")
    with pytest.raises(slipstream.ConfigError, match="state of rank3, and this process is rank 0 of 1"):
        made().load_state_dict(saved)
    for strategy, change, told in [
        ("lags", {"world_size": 4}, "job of 4 workers, and this one has 1"),
        ("ssgd", {}, "strategy 'lags', not 'ssgd'"),
        ("lags", {"inner_count": 4}, "came for 0"),
    ]:
        saved, _ = state(**change)
        with pytest.raises(slipstream.ConfigError, match=told):
            made(strategy).load_state_dict(saved)
    with pytest.raises(slipstream.ConfigError, match="not saved by slipstream.Optimizer"):
        made().load_state_dict(torch.optim.SGD(make_net().parameters(), lr=0.01).state_dict())


@pytest.mark.parametrize("make", OPTIMIZERS.values(), ids=OPTIMIZERS.keys())
def test_a_state_that_the_wrapped_optimizer_has_loaded_is_gone_on_from(make):
    """As a Trainer does that loads before it wraps."""
    whole = make_net()
    opt = slipstream.Optimizer(make(whole.parameters()), whole)
    train(whole, opt, 3)
    saved = copy.deepcopy(opt.state_dict())
    train(whole, opt, 3)
    opt.finish()
    net = make_net()
    inner = make(net.parameters())
    inner.load_state_dict(saved)
    opt = slipstream.Optimizer(inner, net)
    assert opt.resumed and "slipstream" not in inner.param_groups[0]
    train(net, opt, 3)
    assert opt.last_step["step"] == 5
    assert difference(whole, net) == 0


@pytest.mark.parametrize("own_step", [None, True])
@pytest.mark.parametrize("which", ["wrapped", "outer", "wrapped, before"])
def test_schedulers_do_not_warn(which, own_step):
    net = make_net()
    inner = torch.optim.SGD(net.parameters(), lr=0.01)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        early = torch.optim.lr_scheduler.LambdaLR(inner, lambda step: 1 / (1 + step)) if "before" in which else None
        opt = slipstream.Optimizer(inner, net, own_step=own_step)
        schedule = early or torch.optim.lr_scheduler.LambdaLR(opt if which == "outer" else inner, lambda step: 1 / (1 + step))
        train(net, opt, 3, schedule)
    assert opt.last_step["lr"] == pytest.approx(0.01 / 3)


def test_a_scheduler_that_cycles_momentum_is_refused_with_the_cure():
    net = make_net()
    opt = slipstream.Optimizer(torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.9), net)
    schedule = torch.optim.lr_scheduler.OneCycleLR(opt, 0.1, 10)
    with pytest.raises(slipstream.ConfigError, match="cycle_momentum=False"):
        train(net, opt, 3, schedule)
    del opt, schedule
    opt = slipstream.Optimizer(torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.9), net)
    train(net, opt, 3, torch.optim.lr_scheduler.OneCycleLR(opt, 0.1, 10, cycle_momentum=False))


def test_an_optimizer_that_needs_a_closure_is_refused_by_name():
    net = make_net()
    with pytest.raises(slipstream.ConfigError, match="LBFGS evaluates a closure several times"):
        slipstream.Optimizer(torch.optim.LBFGS(net.parameters()), net)


def test_an_unknown_keyword_may_be_near_one_of_the_optimizers_own():
    net = make_net()
    for wrong, right in [("clipnorm", "clip_norm"), ("overlp", "overlap"), ("staged", "stage"), ("ownstep", "own_step")]:
        for strategy in ("ssgd", "dasgd"):
            with pytest.raises(slipstream.ConfigError, match=f"own keywords '{right}' is the nearest"):
                slipstream.Optimizer(torch.optim.SGD(net.parameters(), lr=0.1), net, strategy, **{wrong: 1})


@pytest.mark.parametrize("strategy", ["ssgd", "local", "dasgd"])
@pytest.mark.parametrize("by", ["clip_norm", "clip_grad_norm_"])
def test_clipping_is_that_of_torch(strategy, by):
    if (strategy, by) == ("ssgd", "clip_grad_norm_"):
        by = "refused"  # its gradients have left by then
    bare, net, unclipped = make_net(), make_net(), make_net()
    plain = torch.optim.SGD(bare.parameters(), lr=0.01)
    opt = torch.optim.SGD(net.parameters(), lr=0.01)
    opt = slipstream.Optimizer(opt, net, strategy, clip_norm=0.1 if by == "clip_norm" else 0.0)
    train(unclipped, torch.optim.SGD(unclipped.parameters(), lr=0.01), 4)
    for step in range(4):
        plain.zero_grad()
        opt.zero_grad()
        loss_of(bare, step).backward()
        loss_of(net, step).backward()
        torch.nn.utils.clip_grad_norm_(bare.parameters(), 0.1)
        if by != "clip_norm":
            torch.nn.utils.clip_grad_norm_(net.parameters(), 0.1)
        plain.step()
        if by == "refused":
            with pytest.raises(slipstream.ConfigError, match="clip_norm"):
                opt.step()
            return
        opt.step()
    opt.finish()
    assert difference(bare, net) < 1e-6
    assert difference(bare, unclipped) > 1e-2


def test_a_second_optimizer_waits_for_finish_or_for_nobody_to_hold_the_first():
    net = make_net()
    opt = slipstream.Optimizer(torch.optim.SGD(net.parameters(), lr=0.01), net)
    opt.myself = opt  # freed by the garbage collector alone
    with pytest.raises(slipstream.ConfigError, match=r"another slipstream.Optimizer that has not finished; call its finish\(\)"):
        slipstream.Optimizer(torch.optim.SGD(net.parameters(), lr=0.01), net)
    del opt
    slipstream.Optimizer(torch.optim.SGD(net.parameters(), lr=0.01), net).finish()
