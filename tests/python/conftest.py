# SPDX-License-Identifier: Apache-2.0
import os
import socket
import subprocess
import sys
import textwrap

import pytest

PRELUDE = """
import torch, slipstream
torch.set_num_threads(1)

def make_net(seed=3):
    torch.manual_seed(seed)
    return torch.nn.Sequential(torch.nn.Linear(6, 16), torch.nn.Tanh(), torch.nn.Linear(16, 4))

def data(step, rank):
    g = torch.Generator().manual_seed(100 * step + rank)
    return torch.randn(8, 6, generator=g), torch.randint(0, 4, (8,), generator=g)

def loss_of(net, step, rank):
    x, y = data(step, rank)
    return torch.nn.functional.cross_entropy(net(x), y)

def weights(net):
    return torch.cat([p.detach().flatten() for p in net.parameters()])
"""

# A process that ends with a group left open is now and then aborted by torch 2.13: Gloo's thread lets go of a tensor
# while the interpreter ends.
POSTLUDE = """
import torch.distributed
if torch.distributed.is_initialized():
    torch.distributed.destroy_process_group()
"""


class Ended:
    def __init__(self, code, out, err):
        self.code, self.out, self.err = code, out, err


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


@pytest.fixture
def workers(tmp_path):
    """Runs a script in `count` processes of one job; its directory is the test's."""

    def run(script, count=2):
        path = tmp_path / "script.py"
        path.write_text(PRELUDE + textwrap.dedent(script) + POSTLUDE)
        port = str(free_port())
        started = []
        for rank in range(count):
            env = {**os.environ, "RANK": str(rank), "WORLD_SIZE": str(count), "MASTER_ADDR": "127.0.0.1"}
            env.update(MASTER_PORT=port, OMP_NUM_THREADS="1", USE_LIBUV="0")  # Debian 13 builds torch without libuv
            env.update(SLIPSTREAM_SECRET="a secret that only the processes of this test know")
            started.append(
                subprocess.Popen(
                    [sys.executable, str(path)], cwd=tmp_path, env=env, text=True,
                    stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                )
            )
        ended = []
        for process in started:
            out, err = process.communicate(timeout=240)
            ended.append(Ended(process.returncode, out, err))
        return ended

    return run
