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
