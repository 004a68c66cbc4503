# SPDX-License-Identifier: Apache-2.0
"""Other people's training loops, where they are installed (./run test-torch2 installs them)."""
import pytest


def expect_equal(ended):
    assert [e.code for e in ended] == [0, 0], ended[0].err + ended[1].err
    lines = [e.out.strip().splitlines()[-1] for e in ended]
    assert lines[0] == lines[1] and lines[0].startswith("trained")


def test_lightning_with_clipping_accumulation_and_a_schedule(workers):
    pytest.importorskip("lightning")
    expect_equal(
        workers(
            """
            slipstream.join(hide=True)
            import lightning.pytorch as pl

            class Module(pl.LightningModule):
                def __init__(self):
                    super().__init__()
                    self.net = make_net(3 + slipstream.rank())

                def training_step(self, batch, number):
                    x, y = batch
                    return torch.nn.functional.cross_entropy(self.net(x), y)

                def configure_optimizers(self):
                    opt = torch.optim.AdamW(self.parameters(), lr=0.01)
                    return [opt], [torch.optim.lr_scheduler.CosineAnnealingLR(opt, 3)]

            module = Module()
            before = weights(make_net(3))
            callback = slipstream.Callback("lags", density=0.1, adaptive=False)
            quiet = dict(logger=False, enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False)
            trainer = pl.Trainer(accelerator="cpu", devices=1, max_epochs=2, callbacks=[callback], gradient_clip_val=1.0,
                                 accumulate_grad_batches=2, **quiet)
            batches = [data(step, slipstream.rank()) for step in range(10)]
            trainer.fit(module, torch.utils.data.DataLoader(batches, batch_size=None))
            assert callback.optimizer.last_step["step"] == 9, callback.optimizer.last_step
            assert (weights(module.net) - before).abs().max() > 1e-3
            print("trained", weights(module.net).double().sum().item().hex())
            """
        )
    )


def test_the_trainer_of_hugging_face_with_its_clipping_and_accumulation(workers):
    pytest.importorskip("transformers")
    pytest.importorskip("accelerate")
    expect_equal(
        workers(
            """
            slipstream.join(hide=True)
            from transformers import Trainer, TrainingArguments

            class Net(torch.nn.Module):
                def __init__(self):
                    super().__init__()
                    self.net = make_net(3 + slipstream.rank())

                def forward(self, x=None, labels=None):
                    logits = self.net(x)
                    return {"loss": torch.nn.functional.cross_entropy(logits, labels), "logits": logits}

            net = Net()
            before = weights(make_net(3))
            x, y = data(0, slipstream.rank())
            rows = [{"x": a, "labels": b} for a, b in zip(x, y)] * 8
            arguments = TrainingArguments(output_dir="out", use_cpu=True, max_steps=6, per_device_train_batch_size=4,
                                          gradient_accumulation_steps=2, learning_rate=0.01, report_to=[],
                                          save_strategy="no", logging_strategy="no", disable_tqdm=True)
            callback = slipstream.TrainerCallback("dasgd", period=2)
            Trainer(model=net, args=arguments, train_dataset=rows, callbacks=[callback]).train()
            assert callback.optimizer.last_step["step"] == 5, callback.optimizer.last_step
            assert (weights(net) - before).abs().max() > 1e-3
            print("trained", weights(net).double().sum().item().hex())
            """
        )
    )


TRAINER = """
            slipstream.join(hide=True)
            from transformers import Trainer, TrainingArguments
            rank = slipstream.rank()

            class Net(torch.nn.Module):
                def __init__(self):
                    super().__init__()
                    self.net = make_net(3)

                def forward(self, x=None, labels=None):
                    logits = self.net(x)
                    return {"loss": torch.nn.functional.cross_entropy(logits, labels), "logits": logits}

            def train(folder, steps, save, strategy="dasgd", resume=None, **more):
                x, y = data(0, rank)
                rows = [{"x": a, "labels": b} for a, b in zip(x, y)] * 8
                arguments = TrainingArguments(output_dir=folder, use_cpu=True, max_steps=steps, learning_rate=0.01,
                                              per_device_train_batch_size=4, lr_scheduler_type="constant", report_to=[],
                                              save_strategy=save, save_steps=5, logging_strategy="no", disable_tqdm=True,
                                              **more)
                options = {"lags": {"adaptive": False, "density": 0.1}, "dasgd": {"period": 4, "delay": 2}}[strategy]
                net, callback = Net(), slipstream.TrainerCallback(strategy, **options)
                trainer = Trainer(model=net, args=arguments, train_dataset=rows, eval_dataset=rows[:4], callbacks=[callback])
                trainer.train(resume_from_checkpoint=resume)
                return weights(net), callback.optimizer
"""


@pytest.mark.parametrize("strategy", ["dasgd", "lags"])
def test_the_trainer_resumes_from_each_workers_own_checkpoint_bit_for_bit(workers, strategy):
    pytest.importorskip("transformers")
    pytest.importorskip("accelerate")
    expect_equal(
        workers(
            TRAINER
            + f"""
            whole, opt = train(f"whole{{rank}}", 10, "steps", "{strategy}")
            again, opt = train(f"again{{rank}}", 10, "no", "{strategy}", resume=f"whole{{rank}}/checkpoint-5")
            assert opt.resumed and opt.last_step["step"] == 9, opt.last_step
            assert torch.equal(whole, again)
            print("trained", again.double().sum().item().hex())
            """
        )
    )


def test_the_trainer_does_not_resume_without_a_state_of_ours(workers):
    pytest.importorskip("transformers")
    pytest.importorskip("accelerate")
    ended = workers(
        TRAINER
        + """
            train(f"whole{rank}", 5, "steps", save_only_model=True)
            train(f"again{rank}", 10, "no", resume=f"whole{rank}/checkpoint-5")
            """
    )
    for e in ended:
        assert "ConfigError: training goes on from step 5, and the checkpoint has no state of Slipstream's" in e.err, e.err


def test_workers_that_would_save_into_one_folder_are_refused(workers):
    pytest.importorskip("transformers")
    pytest.importorskip("accelerate")
    ended = workers(TRAINER + """
            train("together", 5, "steps")
            """)
    refused = [e.err for e in ended if "ConfigError: another worker saves its checkpoints in 'together', too" in e.err]
    assert len(refused) == 1 and all(e.code == 1 for e in ended), ended[0].err + ended[1].err
    assert "rank{slipstream.rank()}" in refused[0]


def test_the_trainer_may_not_load_each_workers_own_best_model(workers):
    pytest.importorskip("transformers")
    pytest.importorskip("accelerate")
    ended = workers(TRAINER + """
            train(f"own{rank}", 5, "steps", load_best_model_at_end=True, eval_strategy="steps", eval_steps=5)
            """)
    for e in ended:
        assert e.code == 1 and "ConfigError: load_best_model_at_end would put each worker's own best" in e.err, e.err


def test_lightning_resumes_from_each_workers_own_checkpoint_bit_for_bit(workers):
    pytest.importorskip("lightning")
    expect_equal(
        workers(
            """
            slipstream.join(hide=True)
            import lightning.pytorch as pl
            rank = slipstream.rank()

            class Module(pl.LightningModule):
                def __init__(self):
                    super().__init__()
                    self.net = make_net(3)

                def training_step(self, batch, number):
                    x, y = batch
                    return torch.nn.functional.cross_entropy(self.net(x), y)

                def configure_optimizers(self):
                    return torch.optim.AdamW(self.parameters(), lr=0.01)

            def train(epochs, folder, resume=None):
                module, callback = Module(), slipstream.Callback("dasgd", period=4, delay=2)
                saver = pl.callbacks.ModelCheckpoint(dirpath=folder, filename="{epoch}", save_top_k=-1)
                trainer = pl.Trainer(accelerator="cpu", devices=1, max_epochs=epochs, callbacks=[callback, saver],
                                     logger=False, enable_progress_bar=False, enable_model_summary=False)
                batches = [data(step, rank) for step in range(5)]
                trainer.fit(module, torch.utils.data.DataLoader(batches, batch_size=None), ckpt_path=resume)
                assert callback.optimizer.last_step["step"] == 5 * epochs - 1, callback.optimizer.last_step
                trainer.save_checkpoint(f"{folder}/end.ckpt")   # finish() has been: the weights and torch's own optimizer
                return weights(module.net)

            whole = train(2, f"whole{rank}")
            again = train(2, f"again{rank}", resume=f"whole{rank}/epoch=0.ckpt")
            assert torch.equal(whole, again)
            print("trained", again.double().sum().item().hex())
            """
        )
    )
