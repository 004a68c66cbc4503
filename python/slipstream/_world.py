# SPDX-License-Identifier: Apache-2.0
"""This process's place in its job: one World, joined once, left when the interpreter ends."""
import atexit
import gc
import os
import socket
import weakref
from datetime import timedelta

import torch.distributed as dist

from . import _core

_LAUNCHERS = {
    "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK", "GROUP_WORLD_SIZE", "ROLE_RANK", "ROLE_NAME",
    "ROLE_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT",
}  # fmt: skip
_NOT_HERE = {
    "elastic": "a loop of Python's cannot go back to the step where the others stand when one is lost",
    "max_restarts": "the launcher starts processes again, as torchrun --max-restarts does",
    "chaos": "the supervisor of `python -m slipstream train` inflicts faults, and here is none",
    "chaos_seed": "the supervisor of `python -m slipstream train` inflicts faults, and here is none",
    "servers": "every process that runs this script is a worker, and holds a share of the servers' work",
}
_world = None
_given = {}  # the options that it was joined with
_optimizers = weakref.WeakSet()  # they use the world until they are closed


def pairs(options):
    """Keyword arguments as the texts that the command line takes."""

    def text(value):
        return str(value).lower() if isinstance(value, bool) else str(value)

    return [(key, text(value)) for key, value in options.items()]


def join(*, hide: bool = False, **options: object) -> None:
    """Joins the other processes of the job; once, later calls do nothing and are refused where they have other options.

    Started by torchrun, mpirun or srun a process finds the others by itself; after
    torch.distributed.init_process_group through that group; otherwise it is alone. Keyword arguments are
    the flags of `slipstream train` under "Workers and network", such as timeout=60 or interface="eth0". With sums="c10d"
    dense sums are made by a second group of the same ranks and backend (torch 2.3 and later).

    hide=True takes the launcher's variables (RANK, WORLD_SIZE …) out of the environment afterwards, so that libraries
    that would distribute the job as well (Lightning, Accelerate) see one process.
    """
    global _world, _given
    for key in options:
        if key in _NOT_HERE:
            raise _core.ConfigError(f"join({key}=…) would do nothing: {_NOT_HERE[key]}; leave it out")
    if _world is None:
        through, group = {}, ""
        if dist.is_available() and dist.is_initialized() and "rank" not in options:
            through = _through_group(str(options.get("sums", "auto")))
            if options.get("sums") == "c10d" and hasattr(dist.group.WORLD, "group_name"):  # not in torch 1.13
                # One of our own: whose operations have an order of their own, and a time limit.
                limit = timedelta(seconds=float(options.get("timeout", 120)))
                group = dist.new_group(timeout=limit).group_name
        _world = _core.World(pairs({**options, **through}), group)
        _given = options
        atexit.register(_leave)
    elif options and options != _given:
        before = ", ".join(f"{key}={value!r}" for key, value in _given.items()) or "none"
        raise _core.ConfigError(
            f"this process has joined its job already, with other options ({before}); call join() with all of them once, "
            "before slipstream.Optimizer, hook and Sampler, which join by themselves"
        )
    if hide:
        for name in [name for name in os.environ if name in _LAUNCHERS or name.startswith("TORCHELASTIC_")]:
            del os.environ[name]


def world():
    join()
    return _world


def make_room():
    """Sessions take the same ways through the mesh: one trains at a time. Those that have finished are closed."""
    if any(not optimizer.finished for optimizer in _optimizers):
        gc.collect()  # one that nobody holds any more may wait for it, after an exception for example
    for optimizer in list(_optimizers):
        if not optimizer.finished:
            raise _core.ConfigError(
                f"this process has another {optimizer.what} that has not finished; call its finish() before the next "
                "slipstream.Optimizer or hook is made"
            )
        optimizer._close()


def own_key():
    """Of this rank's part of a state: others' must not be taken for it, by torch.distributed.checkpoint least of all."""
    return f"rank{rank()}"


def signed(strategy, session):
    """What a session trains, and whose it is."""
    return {"strategy": strategy, "rank": rank(), "world_size": size(), "state": dict(session.state())}


def own_part(parts, strategy):
    """This rank's part of what signed() made, by own_key(); refuses another job's or rank's."""
    ours = parts.get(own_key())
    if ours is None:
        raise _core.ConfigError(
            f"this is the state of {', '.join(parts)}, and this process is rank {rank()} of {size()}; every rank loads what "
            "it saved itself"
        )
    if ours["world_size"] != size():
        raise _core.ConfigError(
            f"this state was saved in a job of {ours['world_size']} workers, and this one has {size()}; start as many, or "
            "begin anew with the weights alone"
        )
    if ours["strategy"] != strategy:
        raise _core.ConfigError(
            f"this state is of strategy {ours['strategy']!r}, not {strategy!r}; use that one, or begin anew with the weights "
            "alone"
        )
    return ours


def rank() -> int:
    """This process's number among the workers, 0 before join()."""
    return _world.rank if _world else 0


def size() -> int:
    """How many workers the job has, 1 before join()."""
    return _world.size if _world else 1


def _through_group(sums):
    """Rank 0 of the process group chooses a port and tells it to the others."""
    meeting = [None]
    if dist.get_rank() == 0:
        with socket.socket() as free:
            free.bind(("", 0))
            meeting = [(os.environ.get("MASTER_ADDR", "127.0.0.1"), free.getsockname()[1], sums)]
    dist.broadcast_object_list(meeting)
    host, port, theirs = meeting[0]
    if theirs != sums:
        raise _core.ConfigError(f"join(sums={sums!r}) on rank {dist.get_rank()}, {theirs!r} on rank 0; give all the same")
    return {"rank": dist.get_rank(), "world_size": dist.get_world_size(), "master_addr": host, "master_port": port}


def _leave():
    """A process that ends in mid-training tells the others: their waits end at once, with its rank in the error."""
    global _world
    optimizers = list(_optimizers)
    if _world.size > 1 and any(o._must_finish and not o.finished for o in optimizers):
        _world.announce(f"rank {_world.rank} ended before finish()")
    for optimizer in optimizers:
        optimizer._close()
    _world = None
