# SPDX-License-Identifier: Apache-2.0
"""A small language model in the Trainer of Hugging Face, trained by Slipstream on several workers by the two lines marked
with <--. Needs `pip install transformers accelerate`.

    torchrun --standalone --nproc_per_node 2 examples/python/hf_trainer.py
"""
import argparse
import tempfile

import torch

import slipstream

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=60)
args = parser.parse_args()
slipstream.join(hide=True)  # <-- before the Trainer is made: it must not distribute the job as well

from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments  # noqa: E402

text = torch.tensor(list(("To be, or not to be, that is the question. " * 200).encode()))
windows = text[: len(text) // 32 * 32].view(-1, 32)[slipstream.rank() :: slipstream.size()]
rows = [{"input_ids": window, "labels": window} for window in windows]
torch.manual_seed(1)
net = GPT2LMHeadModel(GPT2Config(vocab_size=128, n_positions=32, n_embd=64, n_layer=2, n_head=4))
callback = slipstream.TrainerCallback("dasgd", period=4)  # <--
with tempfile.TemporaryDirectory() as folder:
    arguments = TrainingArguments(
        output_dir=folder, use_cpu=True, max_steps=args.steps, per_device_train_batch_size=8, learning_rate=3e-3,
        warmup_steps=10, max_grad_norm=1.0, report_to=[], save_strategy="no", logging_strategy="no", disable_tqdm=True,
    )
    trainer = Trainer(
        model=net, args=arguments, train_dataset=rows,
        callbacks=[callback],
    )
    ended = trainer.train()
found = "equal" if callback.optimizer.agreement() else "NOT equal"  # every worker asks
if slipstream.rank() == 0:
    print(f"loss {ended.training_loss:.3f}; the weights are {found} on all {slipstream.size()} workers")
