# SPDX-License-Identifier: Apache-2.0
"""Several processes of one job."""
import subprocess
import sys

import pytest
import torch


def test_ssgd_of_two_workers_is_one_process_with_both_batches(workers):
    ended = workers(
        """
        slipstream.join()
        net, alone = make_net(3 + slipstream.rank()), make_net(3)
        opt = slipstream.Optimizer(torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9), net, "ssgd")
        plain = torch.optim.SGD(alone.parameters(), lr=0.1, momentum=0.9)
        for step in range(6):
            opt.zero_grad()
            loss_of(net, step, slipstream.rank()).backward()
            opt.step()
            plain.zero_grad()
            ((loss_of(alone, step, 0) + loss_of(alone, step, 1)) / 2).backward()
            plain.step()
        opt.finish()
        assert (weights(net) - weights(alone)).abs().max() < 1e-6
        assert opt.last_step["bytes_sent"] > 0
        print("ok")
        """
    )
    assert [(e.code, e.out) for e in ended] == [(0, "ok\n")] * 2, ended[0].err + ended[1].err


def test_join_goes_through_a_process_group_that_is_there(workers):
    ended = workers(
        """
        torch.distributed.init_process_group("gloo")
        slipstream.join()
        net = make_net(3 + slipstream.rank())
        opt = slipstream.Optimizer(torch.optim.SGD(net.parameters(), lr=0.1), net, "ssgd")
        loss_of(net, 0, slipstream.rank()).backward()
        opt.step()
        opt.finish()
        print(slipstream.size(), weights(net).double().sum().item().hex())
        """
    )
    assert [e.code for e in ended] == [0, 0], ended[0].err + ended[1].err
    assert ended[0].out == ended[1].out and ended[0].out.startswith("2 ")


# 70,000 floats: short sums stay with the mesh. c10d cannot encrypt: no secret.
SUMMED = """
    import os
    del os.environ["SLIPSTREAM_SECRET"]
    groups = []
    new_group = torch.distributed.new_group
    torch.distributed.new_group = lambda **options: groups.append(new_group(**options)) or groups[0]
    torch.distributed.init_process_group("gloo")
    slipstream.join(sums={sums!r})
    named = hasattr(torch.distributed.group.WORLD, "group_name")
    assert len(groups) == (1 if {sums!r} == "c10d" and named else 0)
    before = groups and groups[0]._get_sequence_number_for_group()
    torch.manual_seed(3)
    net = torch.nn.Linear(700, 100)
    opt = slipstream.Optimizer(torch.optim.SGD(net.parameters(), lr=0.1), net, "ssgd")
    torch.manual_seed(slipstream.rank())
    for step in range(3):
        opt.zero_grad()
        net(torch.randn(8, 700)).square().mean().backward()
        opt.step()
    assert opt.agreement()
    opt.finish()
    assert not groups or groups[0]._get_sequence_number_for_group() >= before + 3, "the group made the sums"
    summed = torch.ones(1)
    torch.distributed.all_reduce(summed)  # the first group is still its owner's
    print(summed.item(), [t.detach().double().sum().item().hex() for t in net.parameters()])
    """


def test_dense_sums_may_be_made_by_a_process_group_of_torch(workers):
    mesh, group = (workers(SUMMED.format(sums=sums)) for sums in ("mesh", "c10d"))
    for ended in mesh + group:
        assert ended.code == 0, ended.err
    assert len({ended.out for ended in mesh + group}) == 1, "two numbers add up to the same bits in any order"


def test_ranks_that_want_different_sums_are_told(workers):
    ended = workers(
        """
        torch.distributed.init_process_group("gloo")
        rank = torch.distributed.get_rank()
        slipstream.join(sums="mesh" if rank == 0 else "auto", join_timeout=3)
        """
    )
    assert "ConfigError: join(sums='auto') on rank 1, 'mesh' on rank 0" in ended[1].err, ended[1].err
    assert ended[0].code != 0, "rank 1 never joined"


@pytest.mark.parametrize("strategy", ["local", "dasgd", "lags", "gs", "ssd", "diloco"])
def test_weights_are_equal_on_all_ranks_after_finish(workers, strategy):
    ended = workers(
        f"""
        slipstream.join()
        net = make_net(3 + slipstream.rank())
        opt = slipstream.Optimizer(torch.optim.AdamW(net.parameters(), lr=0.01), net, {strategy!r})
        for step in range(9 + slipstream.rank()):   # of unequal length
            opt.zero_grad()
            loss = loss_of(net, step, slipstream.rank())
            loss.backward()
            opt.step(loss=loss)
        opt.finish()
        print(weights(net).double().sum().item().hex())
        """
    )
    assert [e.code for e in ended] == [0, 0], ended[0].err + ended[1].err
    assert ended[0].out == ended[1].out


def test_the_mean_in_mid_training_and_join_between_epochs(workers):
    ended = workers(
        """
        slipstream.join()
        rank = slipstream.rank()
        net = torch.nn.Sequential(make_net(3), torch.nn.BatchNorm1d(4))
        opt = slipstream.Optimizer(torch.optim.SGD(net.parameters(), lr=0.1), net, "dasgd", period=100, delay=1)
        steps = 0

        def all_of(value):   # every rank's, through files
            torch.save(value, f"part{rank}-{steps}")
            opt.agreement()   # a collective: both have written
            return [torch.load(f"part{r}-{steps}") for r in range(2)]

        for epoch in range(2):
            for step in range(3 + rank):   # of unequal length
                opt.zero_grad()
                loss_of(net, 10 * epoch + step, rank).backward()
                opt.step()
            opt.join()
            assert opt.agreement() is False
            steps += 4
            own = torch.cat([weights(net), net[1].running_mean])
            parts = all_of(own)
            assert (parts[0] - parts[1]).abs().max() > 1e-3
            with opt.average():
                mean = torch.cat([weights(net), net[1].running_mean])
                assert (mean - (parts[0] + parts[1]) / 2).abs().max() < 1e-6
            assert torch.equal(torch.cat([weights(net), net[1].running_mean]), own)
        opt.finish()
        assert opt.agreement() is True
        print("ok")
        """
    )
    assert [(e.code, e.out) for e in ended] == [(0, "ok\n")] * 2, ended[0].err + ended[1].err


TORCH_2 = int(torch.__version__.split(".")[0]) >= 2
BY_STATE_DICT = ('torch.save(opt.state_dict(), f"state{rank}")', 'opt.load_state_dict(torch.load(f"state{rank}"))')
BY_DCP = ('checkpoint.save({"opt": opt}, checkpoint_id="state")', 'checkpoint.load({"opt": opt}, checkpoint_id="state")')
RESUMES = [  # strategy, optimizer, how
    ("dasgd", "AdamW", BY_STATE_DICT),
    ("dasgd", "RMSprop", BY_STATE_DICT),
    ("lags", "AdamW", BY_STATE_DICT),
    ("gs", "AdamW", BY_STATE_DICT),
    ("ssd", "AdamW", BY_STATE_DICT),
    ("osp", "AdamW", BY_STATE_DICT),
    *([("dasgd", "AdamW", BY_DCP), ("lags", "AdamW", BY_DCP)] if TORCH_2 else []),  # torch 1.13 has no Stateful
]


@pytest.mark.parametrize(
    "strategy, optimizer, how", RESUMES, ids=[f"{s}-{o}-{'dcp' if h is BY_DCP else 'state_dict'}" for s, o, h in RESUMES]
)
def test_resuming_from_a_workers_own_state_goes_on_bit_for_bit(workers, strategy, optimizer, how):
    script = """
        slipstream.join()
        rank = slipstream.rank()
        if DCP:   # an ordinary one, of a process group
            from torch.distributed import checkpoint
            torch.distributed.init_process_group("gloo", init_method=f"file://{__file__}.group", rank=rank, world_size=2)

        options = {   # measured times must decide nothing; osp never overlaps tensors as small as these
            "dasgd": {"period": 4, "delay": 2},
            "lags": {"adaptive": False, "density": 0.1},
            "gs": {"dense_below": 0, "density": 0.1},
            "ssd": {"warmup_steps": 3, "period": 4},
        }

        def make():
            net = make_net(3)
            inner = torch.optim.OPTIMIZER(net.parameters(), lr=0.01)
            return net, slipstream.Optimizer(inner, net, "STRATEGY", **options.get("STRATEGY", {}))

        def train(net, opt, steps):
            for step in steps:
                opt.zero_grad()
                loss = loss_of(net, step, rank)
                loss.backward()
                opt.step(loss=loss)

        net, opt = make()
        train(net, opt, range(13))
        opt.finish()
        whole = weights(net).clone()
        net, opt = make()
        train(net, opt, range(6))
        SAVE
        opt.finish()
        net, opt = make()
        LOAD
        train(net, opt, range(6, 13))
        assert opt.last_step["step"] == 12
        opt.finish()
        assert torch.equal(weights(net), whole)
        print("ok")
        """
    changes = {"SAVE": how[0], "LOAD": how[1], "DCP": str(how is BY_DCP), "STRATEGY": strategy, "OPTIMIZER": optimizer}
    for word, text in changes.items():
        script = script.replace(word, text)
    ended = workers(script)
    assert [(e.code, e.out) for e in ended] == [(0, "ok\n")] * 2, ended[0].err + ended[1].err


def test_a_state_of_another_rank_is_refused_by_name(workers):
    ended = workers(
        """
        slipstream.join()
        rank = slipstream.rank()
        net = make_net(3)
        opt = slipstream.Optimizer(torch.optim.SGD(net.parameters(), lr=0.01), net, "dasgd")
        torch.save(opt.state_dict(), f"state{rank}")
        opt.agreement()   # a collective: both have written
        try:
            opt.load_state_dict(torch.load(f"state{1 - rank}"))
        except slipstream.ConfigError as e:
            print(e)
        opt.finish()
        """
    )
    for rank in range(2):
        assert f"state of rank{1 - rank}, and this process is rank {rank} of 2" in ended[rank].out, ended[rank].err


@pytest.mark.parametrize("strategy", ["ssgd", "local", "dasgd"])
def test_clip_norm_clips_the_mean_or_in_local_steps_each_workers_own(workers, strategy):
    ended = workers(
        f"""
        slipstream.join()
        rank, local = slipstream.rank(), {strategy!r} != "ssgd"
        options = {{"ssgd": {{}}, "local": {{"period": 100}}, "dasgd": {{"period": 100, "delay": 1}}}}[{strategy!r}]
        net, alone = make_net(3), make_net(3)
        opt = slipstream.Optimizer(torch.optim.SGD(net.parameters(), lr=0.1), net, {strategy!r}, clip_norm=0.05, **options)
        plain = torch.optim.SGD(alone.parameters(), lr=0.1)
        for step in range(6):
            opt.zero_grad()
            loss_of(net, step, rank).backward()
            opt.step()
            plain.zero_grad()
            (loss_of(alone, step, rank) if local else (loss_of(alone, step, 0) + loss_of(alone, step, 1)) / 2).backward()
            assert torch.nn.utils.clip_grad_norm_(alone.parameters(), 0.05) > 0.1   # it has something to do
            plain.step()
        assert (weights(net) - weights(alone)).abs().max() < 1e-6
        assert opt.agreement() != local
        opt.finish()
        print("ok")
        """
    )
    assert [(e.code, e.out) for e in ended] == [(0, "ok\n")] * 2, ended[0].err + ended[1].err


def test_a_rank_that_dies_is_named_by_the_others(workers):
    ended = workers(
        """
        import os
        slipstream.join()
        net = make_net()
        opt = slipstream.Optimizer(torch.optim.SGD(net.parameters(), lr=0.01), net, "ssgd")
        try:
            for step in range(1000):
                loss_of(net, step, slipstream.rank()).backward()
                if step == 3 and slipstream.rank() == 1:
                    os._exit(7)
                opt.step()
        except slipstream.FabricError as e:
            print("told:", e)
        """
    )
    assert ended[1].code == 7, ended[1].err
    assert ended[0].out.startswith("told: rank 1 is lost"), ended[0].out + ended[0].err


def test_a_failure_that_backward_meets_is_a_fabric_error_of_step(workers):
    ended = workers(
        """
        import os
        slipstream.join()
        net = make_net()
        opt = slipstream.Optimizer(torch.optim.SGD(net.parameters(), lr=0.01), net, "ssgd")
        if slipstream.rank() == 1:
            os._exit(7)
        for attempt in range(2):   # the second one's gradients cannot even leave
            loss_of(net, attempt, 0).backward()
            try:
                opt.step()
            except slipstream.FabricError as e:
                print("told:", e)
        """
    )
    assert ended[1].code == 7, ended[1].err
    assert ended[0].code == 0 and ended[0].out.count("told: ") == 2, ended[0].out + ended[0].err


def test_an_exception_on_one_rank_ends_the_others_waits(workers):
    ended = workers(
        """
        slipstream.join()
        net = make_net()
        opt = slipstream.Optimizer(torch.optim.SGD(net.parameters(), lr=0.01), net, "ssgd")
        for step in range(1000):
            loss_of(net, step, slipstream.rank()).backward()
            if step == 3 and slipstream.rank() == 1:
                raise ValueError("a bug of the user's")
            opt.step()
        """
    )
    assert "a bug of the user's" in ended[1].err
    assert "slipstream._core.FabricError" in ended[0].err and "rank 1 ended" in ended[0].err


def test_ctrl_c_is_a_keyboard_interrupt_on_all_ranks(workers):
    ended = workers(
        """
        import os, signal
        slipstream.join()
        net = make_net()
        opt = slipstream.Optimizer(torch.optim.SGD(net.parameters(), lr=0.01), net, "ssgd")
        try:
            for step in range(100000):
                loss_of(net, step, slipstream.rank()).backward()
                if step == 3:
                    os.kill(os.getpid(), signal.SIGINT)
                opt.step()
        except KeyboardInterrupt:
            print("interrupted")
        """
    )
    assert [e.out for e in ended] == ["interrupted\n"] * 2, ended[0].err + ended[1].err


def test_the_command_line_trains_and_its_model_loads_with_weights_only(tmp_path):
    command = [sys.executable, "-m", "slipstream", "train", "--workers", "2", "--model", "mlp", "--steps", "5"]
    ended = subprocess.run([*command, "--out", str(tmp_path / "run")], text=True, capture_output=True, timeout=240)
    assert ended.returncode == 0, ended.stderr
    assert "bit-identical" in ended.stdout
    state = torch.load(tmp_path / "run" / "model.pt", weights_only=True)
    assert list(state) == ["first.weight", "first.bias", "second.weight", "second.bias", "last.weight", "last.bias"]


def test_staged_parameters_train_as_the_others_and_sixteen_bits_nearly(workers):
    ended = workers(
        """
        slipstream.join()

        def train(stage, dtype):
            net = make_net(3).to(dtype)
            opt = slipstream.Optimizer(torch.optim.AdamW(net.parameters(), lr=1e-3), net, "lags", stage=stage)
            for step in range(8):
                opt.zero_grad()
                x, y = data(step, slipstream.rank())
                loss = torch.nn.functional.cross_entropy(net(x.to(dtype)).float(), y)
                loss.backward()
                opt.step(loss=loss)
            opt.finish()
            assert next(net.parameters()).dtype == dtype
            return weights(net).float()

        exact = train(False, torch.float32)
        assert torch.equal(exact, train(True, torch.float32))
        assert (exact - train(False, torch.bfloat16)).abs().max() < 0.01
        print("ok")
        """
    )
    assert [(e.code, e.out) for e in ended] == [(0, "ok\n")] * 2, ended[0].err + ended[1].err
