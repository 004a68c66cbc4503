# SPDX-License-Identifier: Apache-2.0
"""Callbacks that take the steps of other people's training loops together with the other workers of the job.

Lightning's Trainer and that of Hugging Face would distribute a job themselves where a launcher started it; join() with
hide=True makes them see one process. They clip gradients between backward() and step(), so that gradients leave in
step() and not before (overlap=False).

Every worker saves and resumes its own checkpoints, in a folder of its own. The Trainer of Hugging Face loads a state into
the optimizer before ours is made; it waits there for ours (Optimizer.state_dict).

The classes are made when they are asked for: neither library is needed to import slipstream.
"""
import fcntl
import os

from . import _world
from ._core import ConfigError
from .optimizer import Optimizer


class _Steps:
    """What both have: the arguments of slipstream.Optimizer after the module, and it from the beginning of training on."""

    def __init__(self, strategy="ssgd", **options):
        self.strategy, self.options, self.optimizer, self._locks = strategy, options, None, []

    def _wrapped(self, inner, module):
        self.optimizer = Optimizer(inner, module, self.strategy, overlap=False, **self.options)
        return self.optimizer

    def _keep_to_ourselves(self, folder, setting):
        """Workers that save into one folder would overwrite each other's files. The lock is this process's until it
        ends; file systems without locks are trusted."""
        if _world.size() == 1:
            return
        os.makedirs(folder, exist_ok=True)
        lock = open(os.path.join(folder, ".slipstream.lock"), "w")
        self._locks.append(lock)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ConfigError(
                f"another worker saves its checkpoints in '{folder}', too, and they would overwrite each other's; give every "
                f"worker a folder of its own, {setting}=f\"{folder}/rank{{slipstream.rank()}}\", or save nothing"
            ) from None
        except OSError:
            pass

    def _finish(self):
        """The wrapped optimizer, which is the Trainer's again: it may save or go on without us."""
        self.optimizer.finish()
        while self._locks:
            self._locks.pop().close()
        return self.optimizer.optimizer


def lightning_callback():
    from lightning.pytorch import callbacks

    class Callback(_Steps, callbacks.Callback):
        """For PyTorch Lightning: Trainer(accelerator="cpu", devices=1, callbacks=[slipstream.Callback("lags")]).

        Arguments are those of slipstream.Optimizer after the module. Every worker gives its own part of the data; after
        fit() all have equal weights. `optimizer` is the slipstream.Optimizer during fit(). Checkpoints are each worker's
        own: ModelCheckpoint(dirpath=f"…/rank{slipstream.rank()}"), and fit(ckpt_path=…) with its own.
        """

        def on_fit_start(self, trainer, module):
            if len(trainer.optimizers) != 1:
                raise ConfigError(f"the module has {len(trainer.optimizers)} optimizers; Slipstream takes one")
            for saver in trainer.checkpoint_callbacks:
                if getattr(saver, "dirpath", None):
                    self._keep_to_ourselves(saver.dirpath, "dirpath")
            trainer.strategy.optimizers = [self._wrapped(trainer.optimizers[0], module)]

        def on_train_end(self, trainer, module):
            trainer.strategy.optimizers = [self._finish()]

    return Callback


def trainer_callback():
    import transformers

    class TrainerCallback(_Steps, transformers.TrainerCallback):
        """For the Trainer of Hugging Face: Trainer(…, callbacks=[slipstream.TrainerCallback("dasgd", period=8)]).

        Arguments are those of slipstream.Optimizer after the module. Every worker gives its own part of the data; after
        train() all have equal weights. `optimizer` is the slipstream.Optimizer during train(). Checkpoints are each
        worker's own: output_dir=f"…/rank{slipstream.rank()}", and train(resume_from_checkpoint=…) with its own.
        """

        def on_train_begin(self, args, state, control, model=None, optimizer=None, **more):
            if args.load_best_model_at_end and _world.size() > 1:
                raise ConfigError(
                    "load_best_model_at_end would put each worker's own best checkpoint in the place of the weights before "
                    "the workers come together at the end; leave it out, and load trainer.state.best_model_checkpoint of one "
                    "worker after train()"
                )
            if args.save_strategy != "no":
                self._keep_to_ourselves(args.output_dir, "output_dir")
            optimizer.optimizer = self._wrapped(optimizer.optimizer, model)  # Accelerate's wrapper goes on stepping it
            if state.global_step > 0 and not self.optimizer.resumed:
                raise ConfigError(
                    f"training goes on from step {state.global_step}, and the checkpoint has no state of Slipstream's: it "
                    "was saved without slipstream.TrainerCallback, or with save_only_model; load the weights into the model, "
                    "and call train() without resume_from_checkpoint"
                )

        def on_train_end(self, args, state, control, optimizer=None, **more):
            optimizer.optimizer = self._finish()

    return TrainerCallback
