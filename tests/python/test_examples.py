# SPDX-License-Identifier: Apache-2.0
"""The scripts of examples/python as a user starts them. The image classifiers have the recipe of `slipstream train` and
must come to its weights; the others have no counterpart in the program."""
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

ROOT = Path(__file__).resolve().parents[2]
STEPS = "12"
ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1", "USE_LIBUV": "0"}  # Debian 13 builds torch without libuv


def run_example(example, *flags):
    name, *more = example.split()
    launcher = [sys.executable, str(ROOT / "tests/torchrun.py"), "--standalone", "--nproc_per_node=2"]
    command = [*launcher, str(ROOT / "examples/python" / name), "--steps", STEPS, *more, *flags]
    ended = subprocess.run(command, text=True, capture_output=True, timeout=300, env=ENVIRONMENT)
    assert ended.returncode == 0, ended.stderr
    assert "the weights are equal on all 2 workers" in ended.stdout, ended.stdout


@pytest.mark.parametrize(
    "example, needs",
    [
        ("image_classifier.py", None),
        ("char_model.py", None),
        ("ddp_classifier.py --hook lags", None),
        ("lightning_module.py", "lightning"),
        ("hf_trainer.py", "transformers"),
    ],
)
def test_the_examples_run_under_torchrun(example, needs):
    if needs:
        pytest.importorskip(needs)
    run_example(example)


@pytest.fixture(scope="module")
def trained_by_the_program(tmp_path_factory):
    """The weights that `slipstream train` comes to by the recipe of the image classifiers."""
    out = tmp_path_factory.mktemp("program") / "run"
    command = [sys.executable, "-m", "slipstream", "train", "--workers", "2", "--strategy", "ssgd", "--steps", STEPS]
    ended = subprocess.run([*command, "--out", str(out)], text=True, capture_output=True, timeout=300, env=ENVIRONMENT)
    assert ended.returncode == 0, ended.stderr
    return torch.load(out / "model.pt", weights_only=True)


# Under DDP torch's own SGD takes the steps, which rounds a product and a sum once where ours rounds both.
@pytest.mark.parametrize(
    "example, tolerance",
    [("image_classifier.py --strategy ssgd", 0), ("ddp_classifier.py", 1e-5), ("ddp_classifier.py --hook ssgd", 1e-5)],
)
def test_the_image_classifiers_come_to_the_weights_of_the_program(example, tolerance, trained_by_the_program, tmp_path):
    run_example(example, "--save", str(tmp_path / "weights.pt"))
    weights = torch.load(tmp_path / "weights.pt", weights_only=True)
    assert weights.keys() == trained_by_the_program.keys()
    for name, value in trained_by_the_program.items():
        assert (weights[name] - value).abs().max() <= tolerance, name
