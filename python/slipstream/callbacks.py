# SPDX-License-Identifier: Apache-2.0
"""Callbacks that take the steps of other people's training loops together with the other workers of the job.

Lightning's Trainer and that of Hugging Face would distribute a job themselves where a launcher started it; join() with
hide=True makes them see one process. They clip gradients between backward() and step(), so that gradients leave in
step() and not before (overlap=False).

The classes are made when they are asked for: neither library is needed to import slipstream.
"""
from ._core import ConfigError
from .optimizer import Optimizer


class _Steps:
    """What both have: the arguments of slipstream.Optimizer after the module, and it from the beginning of training on."""

    def __init__(self, strategy="ssgd", **options):
        self.strategy, self.options, self.optimizer = strategy, options, None

    def _wrapped(self, inner, module):
        self.optimizer = Optimizer(inner, module, self.strategy, overlap=False, **self.options)
        return self.optimizer


def lightning_callback():
    from lightning.pytorch import callbacks

    class Callback(_Steps, callbacks.Callback):
        """For PyTorch Lightning: Trainer(accelerator="cpu", devices=1, callbacks=[slipstream.Callback("lags")]).

        Arguments are those of slipstream.Optimizer after the module. Every worker gives its own part of the data; after
        fit() all have equal weights. `optimizer` is the slipstream.Optimizer during fit().
        """

        def on_fit_start(self, trainer, module):
            if len(trainer.optimizers) != 1:
                raise ConfigError(f"the module has {len(trainer.optimizers)} optimizers; Slipstream takes one")
            trainer.strategy.optimizers = [self._wrapped(trainer.optimizers[0], module)]

        def on_train_end(self, trainer, module):
            self.optimizer.finish()

    return Callback


def trainer_callback():
    import transformers

    class TrainerCallback(_Steps, transformers.TrainerCallback):
        """For the Trainer of Hugging Face: Trainer(…, callbacks=[slipstream.TrainerCallback("dasgd", period=8)]).

        Arguments are those of slipstream.Optimizer after the module. Every worker gives its own part of the data; after
        train() all have equal weights. `optimizer` is the slipstream.Optimizer during train().
        """

        def on_train_begin(self, args, state, control, model=None, optimizer=None, **more):
            optimizer.optimizer = self._wrapped(optimizer.optimizer, model)  # Accelerate's wrapper goes on stepping it

        def on_train_end(self, args, state, control, **more):
            self.optimizer.finish()

    return TrainerCallback
