# SPDX-License-Identifier: Apache-2.0
"""slipstream.hook under torch's own DistributedDataParallel."""
import pytest

GROUP = """
        import torch.distributed as dist
        from torch.nn.parallel import DistributedDataParallel
        dist.init_process_group("gloo")
        rank = dist.get_rank()

        def loss_of(net, step, rank):   # can be learnt: which of four inputs is the largest
            x, _ = data(step, rank)
            return torch.nn.functional.cross_entropy(net(x), x[:, :4].argmax(1))

        def train(hooked, steps=8, strategy="ssgd", momentum=0.9, **options):
            net = torch.nn.Sequential(*[make_net(3), torch.nn.Linear(4, 300), torch.nn.Linear(300, 4)])
            ddp = DistributedDataParallel(net, bucket_cap_mb=0.002)   # several buckets, cut anew after the first step
            made = slipstream.hook(ddp, strategy, **options) if hooked else None
            opt = torch.optim.SGD(ddp.parameters(), lr=0.05, momentum=momentum)
            for step in range(steps):
                opt.zero_grad()
                loss = loss_of(ddp, step, rank)
                loss.backward()
                opt.step()
            return net, made
"""


def expect_ok(ended):
    assert [(e.code, e.out) for e in ended] == [(0, "ok\n")] * len(ended), "\n".join(e.err for e in ended)


def test_ssgd_of_two_workers_is_ddp_bit_for_bit(workers):
    expect_ok(
        workers(
            GROUP
            + """
        torch.manual_seed(1)
        plain, _ = train(False)
        torch.manual_seed(1)
        ours, made = train(True)
        assert torch.equal(weights(plain), weights(ours))
        assert made.last_step["bytes_sent"] > 0
        print("ok")
        """
        )
    )


def test_accumulation_and_unused_parameters_are_as_under_ddp_bit_for_bit(workers):
    expect_ok(
        workers(
            GROUP
            + """
        class TwoWays(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.ways = torch.nn.ModuleList([make_net(4), make_net(5)])

            def forward(self, x, way):
                return self.ways[way](x)

        def trained(hooked):
            net = TwoWays()
            ddp = DistributedDataParallel(net, find_unused_parameters=True)
            if hooked:
                slipstream.hook(ddp, "ssgd")
            opt = torch.optim.SGD(ddp.parameters(), lr=0.05, momentum=0.9)
            for step in range(6):
                opt.zero_grad()
                with ddp.no_sync():
                    ddp(data(2 * step, rank)[0], 0).square().sum().backward()
                ddp(data(2 * step + 1, rank)[0], step % 2).square().sum().backward()
                opt.step()
            return weights(net)

        assert torch.equal(trained(False), trained(True))
        print("ok")
        """
        )
    )


@pytest.mark.parametrize("strategy, options", [("topk", "density=0.05"), ("lags", "adaptive=False, density=0.05")])
def test_what_is_not_sent_is_owed_by_parameter(workers, strategy, options):
    """Gradients that never change: after some steps what was applied plus the mean of what is owed is their sum."""
    expect_ok(
        workers(
            GROUP
            + f"""
        net = torch.nn.Sequential(torch.nn.Linear(20, 30), torch.nn.Linear(30, 10))
        ddp = DistributedDataParallel(net, bucket_cap_mb=0.001)
        made = slipstream.hook(ddp, {strategy!r}, {options})
        applied, steps = torch.zeros(len(weights(net))), 7
        for step in range(steps):
            ddp.zero_grad()
            torch.manual_seed(rank)
            ddp(torch.randn(4, 20)).square().sum().backward()
            applied += torch.cat([p.grad.flatten() for p in net.parameters()])
        torch.manual_seed(rank)
        net.zero_grad()
        net(torch.randn(4, 20)).square().sum().backward()
        own = torch.cat([p.grad.flatten() for p in net.parameters()])
        owed = made.state_dict()[f"rank{{rank}}"]["state"]["strategy/residual"].flatten()
        balance = steps * own - owed
        dist.all_reduce(balance)
        balance /= dist.get_world_size()
        assert owed.abs().max() > 0
        assert (applied - balance).abs().max() < 1e-4 * balance.abs().max(), (applied - balance).abs().max()
        print("ok")
        """
        )
    )


@pytest.mark.parametrize("strategy", ["lags", "gs", "gtopk", "powersgd"])
def test_workers_stay_equal_and_learn(workers, strategy):
    expect_ok(
        workers(
            GROUP
            + f"""
        net, _ = train(True, steps=100, strategy={strategy!r}, momentum=0.0)
        mine = weights(net)
        theirs = mine.clone()
        dist.broadcast(theirs, 0)
        assert torch.equal(mine, theirs)
        loss = sum(loss_of(net, step, rank).item() for step in range(100, 120)) / 20
        assert loss < 1.2, loss   # ln 4 = 1.39 is a guess
        print("ok")
        """
        )
    )


def test_a_strategy_that_moves_weights_is_refused(workers):
    ended = workers(
        GROUP
        + """
        train(True, strategy="dasgd")
        """
    )
    for e in ended:
        assert e.code == 1
        assert "ConfigError" in e.err and "slipstream.Optimizer" in e.err, e.err


def test_after_finish_ddp_goes_on_by_itself_and_another_may_be_made(workers):
    expect_ok(
        workers(
            GROUP
            + """
        net, twin = make_net(3), make_net(3)
        ddp, plain = DistributedDataParallel(net), DistributedDataParallel(twin)
        made = slipstream.hook(ddp, "topk", density=0.05)
        loss_of(ddp, 0, rank).backward()
        loss_of(plain, 0, rank).backward()
        assert not torch.equal(net[0].weight.grad, twin[0].weight.grad)
        try:
            slipstream.hook(plain, "ssgd")
        except slipstream.ConfigError as e:
            assert "another slipstream.hook that has not finished" in str(e), e
        saved = made.state_dict()
        made.finish()
        made.finish()
        for late in (made.state_dict, lambda: made.load_state_dict(saved)):
            try:
                late()
                raise AssertionError("it was taken")
            except slipstream.ConfigError as e:
                assert "after finish()" in str(e), e
        for n in (ddp, plain):
            n.zero_grad()
            loss_of(n, 1, rank).backward()
        assert torch.equal(net[0].weight.grad, twin[0].weight.grad)

        second = slipstream.hook(plain, "ssgd")   # of the same process
        plain.zero_grad()
        loss_of(plain, 1, rank).backward()
        assert torch.equal(net[0].weight.grad, twin[0].weight.grad) and second.last_step["step"] == 0
        second.finish()
        third = make_net(5)
        opt = slipstream.Optimizer(torch.optim.SGD(third.parameters(), lr=0.1), third, "dasgd")
        loss_of(third, 0, rank).backward()
        opt.step()
        opt.finish()
        assert opt.agreement()
        print("ok")
        """
        )
    )


def test_a_lost_rank_is_a_fabric_error_of_backward(workers):
    ended = workers(
        GROUP
        + """
        import os
        net = make_net(3)
        ddp = DistributedDataParallel(net)
        slipstream.hook(ddp, "ssgd")
        if rank == 1:
            os._exit(7)
        try:
            loss_of(ddp, 0, rank).backward()
        except slipstream.FabricError as e:
            print("told:", e)
            os._exit(0)   # gloo's own threads have lost a rank, too
        """
    )
    assert ended[1].code == 7, ended[1].err
    assert ended[0].out.startswith("told: rank 1 "), ended[0].out + ended[0].err
