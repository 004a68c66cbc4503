# SPDX-License-Identifier: Apache-2.0
"""Data-parallel training over slow networks.

    import slipstream
    slipstream.join()                     # torchrun, mpirun, srun, or one process alone
    opt = slipstream.Optimizer(torch.optim.AdamW(net.parameters(), lr=3e-4), net, strategy="dasgd", period=8)
    for x, y in loader:                   # the loop is unchanged
        opt.zero_grad(); loss_of(net, x, y).backward(); opt.step()
    opt.finish()                          # equal weights everywhere

`help(slipstream.strategies.dasgd)` tells how a strategy works and its options.
"""
import torch

from ._built import TORCH_VERSION as _built_for


def _minor(version):
    return version.split("+")[0].split(".")[:2]


if _minor(torch.__version__) != _minor(_built_for):
    raise ImportError(
        f"this slipstream was built for torch {_built_for}, and here is {torch.__version__}; "
        "install slipstream again, so that it is built for the torch that is there"
    )

from . import _core, callbacks, strategies  # noqa: E402
from ._core import ConfigError, DataError, DivergedError, Error, FabricError  # noqa: E402
from ._world import join, rank, size  # noqa: E402
from .hook import STRATEGIES as HOOK_STRATEGIES  # noqa: E402
from .hook import hook  # noqa: E402
from .optimizer import Optimizer  # noqa: E402
from .sampler import Sampler  # noqa: E402

__version__ = _core.version


def about() -> str:
    """Version, torch and place in the job, in a few lines of text for bug reports."""
    return (
        f"slipstream {__version__}, built for torch {_built_for}, running with torch {torch.__version__}\n"
        f"rank {rank()} of {size()}\n"
        f"strategies: {', '.join(_core.strategy_names())}"
    )


def __getattr__(name):
    makers = {"Callback": callbacks.lightning_callback, "TrainerCallback": callbacks.trainer_callback}
    if name not in makers:
        raise AttributeError(f"module 'slipstream' has no attribute {name!r}")
    globals()[name] = made = makers[name]()
    return made


__all__ = [
    "Callback",
    "ConfigError",
    "DataError",
    "DivergedError",
    "Error",
    "FabricError",
    "HOOK_STRATEGIES",
    "Optimizer",
    "Sampler",
    "TrainerCallback",
    "about",
    "hook",
    "join",
    "rank",
    "size",
    "strategies",
]
