# SPDX-License-Identifier: Apache-2.0
"""The event files of `slipstream train --tensorboard`, read by the real TensorBoard.

SLIPSTREAM_BINARY is the program. TensorBoard comes from PyPI into a virtual environment below SLIPSTREAM_BUILD, made
once: it is no part of Debian, and nothing else needs it.
"""
import json
import os
import pathlib
import subprocess

import pytest

BINARY = os.environ["SLIPSTREAM_BINARY"]
TENSORBOARD = "tensorboard==2.21.0"

# Prints what TensorBoard finds in a folder.
READ = """
import json, sys
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
events = EventAccumulator(sys.argv[1], size_guidance={"scalars": 0, "tensors": 0})
events.Reload()
scalars = {tag: [[e.step, e.value] for e in events.Scalars(tag)] for tag in events.Tags()["scalars"]}
texts = {tag: [e.tensor_proto.string_val[0].decode() for e in events.Tensors(tag)] for tag in events.Tags()["tensors"]}
plugins = {tag: events.SummaryMetadata(tag).plugin_data.plugin_name for tag in texts}
times = [e.wall_time for e in events.Scalars("train/loss")]
print(json.dumps({"scalars": scalars, "texts": texts, "plugins": plugins, "times": times}))
"""


@pytest.fixture(scope="session")
def reader():
    """The Python of an environment that has TensorBoard."""
    folder = pathlib.Path(os.environ["SLIPSTREAM_BUILD"]) / "tensorboard"
    python, stamp = folder / "bin/python", folder / TENSORBOARD
    if not stamp.exists():
        subprocess.run(["/usr/bin/python3", "-m", "venv", "--clear", folder], check=True)
        subprocess.run([python, "-m", "pip", "install", "-q", "--disable-pip-version-check", TENSORBOARD], check=True)
        stamp.touch()
    return python


@pytest.fixture
def read(reader):
    def with_tensorboard(out):
        done = subprocess.run([reader, "-c", READ, out / "tensorboard"], capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)
    return with_tensorboard


def train(out, *flags):
    command = [BINARY, "train", "--workers", "2", "--task", "fashion-mnist", "--model", "mlp", "--batch", "16",
               "--tensorboard", "--out", out, *flags]
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return out


def ledger(out):
    """Steps and evaluations of rank 0."""
    lines = [json.loads(line) for line in (out / "ledger.rank0.jsonl").read_text().splitlines()]
    return [line for line in lines if "step_ms" in line], [line for line in lines if "test_accuracy" in line]


def test_holds_what_the_ledger_holds(tmp_path, read):
    out = train(tmp_path / "a", "--steps", 12, "--eval-every", 5, "--strategy", "lags")
    found, (steps, evaluations) = read(out), ledger(out)
    for tag, key, tolerance in (("train/loss", "loss", 1e-5), ("train/lr", "lr", 1e-5), ("step_ms/step", "step_ms", 1e-3),
                                ("step_ms/update", "update_ms", 1e-3), ("step_ms/encode", "encode_ms", 1e-3),
                                ("step_ms/exposed", "exposed_ms", 1e-3), ("network/bytes_sent", "bytes_sent", 1),
                                ("network/bytes_received", "bytes_received", 1)):
        told = found["scalars"][tag]
        assert [step for step, _ in told] == list(range(12)), tag
        assert [value for _, value in told] == pytest.approx([line[key] for line in steps], rel=1e-5, abs=tolerance), tag
    compute = [line["compute_ms"] - line["update_ms"] for line in steps]  # the ledger's holds the update
    assert [value for _, value in found["scalars"]["step_ms/compute"]] == pytest.approx(compute, abs=2e-3)
    assert all(0 <= value <= 1 for _, value in found["scalars"]["network/hidden"])
    accuracy = json.loads((out / "summary.json").read_text())["test_accuracy"]
    expected = [[line["step"], line["test_accuracy"]] for line in evaluations] + [[12, accuracy]]
    assert [step for step, _ in expected] == [5, 10, 12]
    assert found["scalars"]["evaluation/test_accuracy"] == [[s, pytest.approx(v, rel=1e-5)] for s, v in expected]
    assert found["times"] == sorted(found["times"])


def test_shows_the_configuration_as_a_text(tmp_path, read):
    found = read(train(tmp_path / "a", "--steps", 3))
    assert found["plugins"] == {"configuration": "text"}
    assert '    strategy = "ssgd"\n' in found["texts"]["configuration"][0].replace("'", '"')


def test_a_resumed_run_goes_on_at_its_step(tmp_path, read):
    out = tmp_path / "a"
    train(out, "--steps", 7, "--checkpoint-every", 4)
    train(out, "--steps", 11, "--checkpoint-every", 4, "--resume", "latest")
    assert len(list((out / "tensorboard").iterdir())) == 2
    found, (steps, _) = read(out), ledger(out)
    told = found["scalars"]["train/loss"]
    assert [step for step, _ in told] == list(range(11)), "each step once"
    assert [value for _, value in told] == pytest.approx([line["loss"] for line in steps], rel=1e-5)


def test_a_new_run_replaces_the_events_of_an_earlier_one(tmp_path, read):
    out = train(tmp_path / "a", "--steps", 6)
    train(out, "--steps", 3, "--overwrite")
    assert [step for step, _ in read(out)["scalars"]["train/loss"]] == [0, 1, 2]
