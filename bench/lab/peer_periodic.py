#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Other peers: programs that average weights every few steps. torchft's LocalSGD and DiLoCo, and hivemind's Optimizer.

Model, batch, optimizer, thread count and output are those of peer_ddp.py, which has the same place in the lab:

  slipstream lab --hosts 2 --rate 100mbit -- PYTHON peer_periodic.py --peer torchft-diloco --period 8

A period's steps are not alike, so `samples_per_second` is the figure to compare; the median step is one without an
exchange. Needs a virtual environment with torch and, as the peer asks, `pip install torchft-nightly` or `hivemind`; keep
pip from replacing torch with a constraints file.
"""
import argparse
import json
import os
import socket
import statistics
from datetime import timedelta

from peer_ddp import BATCH, batches, make_model, sgd, train

import torch
import torch.distributed as dist

PATIENCE = timedelta(seconds=60)


def own_address():
    """The address from which this process reaches rank 0."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect((os.environ["MASTER_ADDR"], 9))
        return probe.getsockname()[0]


def torchft_manager(model, optimizer, kept):
    """A replica of torchft: each process is a group of its own. Rank 0 has the lighthouse, where they meet."""
    socket.gethostname = own_address  # torchft tells others the host's name, which need not be one in the lab
    from torchft import Manager, ProcessGroupGloo
    from torchft.coordination import LighthouseServer

    address, port = own_address(), int(os.environ["MASTER_PORT"]) + 1
    if dist.get_rank() == 0:
        kept.append(LighthouseServer(bind=f"[::]:{port}", min_replicas=dist.get_world_size(), join_timeout_ms=1000))
    dist.barrier()
    store = dist.TCPStore(address, 0, is_master=True, wait_for_workers=False)
    manager = Manager(
        pg=ProcessGroupGloo(timeout=PATIENCE), min_replica_size=dist.get_world_size(), use_async_quorum=False,
        load_state_dict=lambda state: (model.load_state_dict(state[0]), optimizer.load_state_dict(state[1])),
        state_dict=lambda: [model.state_dict(), optimizer.state_dict()], rank=0, world_size=1, store_addr=address,
        store_port=store.port, lighthouse_addr=f"http://{os.environ['MASTER_ADDR']}:{port}",
        replica_id=f"peer{dist.get_rank()}", init_sync=False, timeout=PATIENCE,
    )
    kept.append(store)
    return manager


def torchft_local(model, args, kept):
    from torchft.local_sgd import LocalSGD

    optimizer = sgd(model)
    manager = torchft_manager(model, optimizer, kept)
    kept.append(LocalSGD(manager, model, optimizer, args.period).__enter__())
    return optimizer, manager.shutdown


def torchft_diloco(model, args, kept):
    from torchft.local_sgd import DiLoCo

    optimizer = sgd(model)
    manager = torchft_manager(model, optimizer, kept)
    outer = torch.optim.SGD(model.parameters(), lr=0.7, momentum=0.9, nesterov=True)
    kept.append(DiLoCo(manager, [model], optimizer, outer, args.period, pin_memory=False,
                       use_bucketization=True).__enter__())
    return optimizer, manager.shutdown


def hivemind_local(model, args, kept):
    """Local steps, averaged in the background whenever all peers together have taken `period` batches each."""
    import hivemind

    meeting = [None]
    host = [f"/ip4/{own_address()}/tcp/0"]
    if dist.get_rank() == 0:
        kept.append(hivemind.DHT(host_maddrs=host, start=True))
        meeting = [[str(address) for address in kept[-1].get_visible_maddrs()]]
    dist.broadcast_object_list(meeting)
    if dist.get_rank() != 0:
        kept.append(hivemind.DHT(host_maddrs=host, initial_peers=meeting[0], start=True))
    optimizer = hivemind.Optimizer(
        dht=kept[-1], run_id="lab", batch_size_per_step=BATCH,
        target_batch_size=BATCH * dist.get_world_size() * args.period, params=model.parameters(),
        optimizer=lambda parameters: torch.optim.SGD(parameters, lr=0.05, momentum=0.9), use_local_updates=True,
        matchmaking_time=args.matchmaking, averaging_timeout=PATIENCE.total_seconds(),
        averager_opts={"request_timeout": args.matchmaking / 3},
    )
    return optimizer, optimizer.shutdown


PEERS = {"torchft-local": torchft_local, "torchft-diloco": torchft_diloco, "hivemind": hivemind_local}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peer", choices=PEERS, required=True)
    parser.add_argument("--period", type=int, default=8, help="steps between two averages")
    parser.add_argument("--periods", type=int, default=8, help="measured; one more comes first")
    parser.add_argument("--model", choices=("mlp", "cnn"), default="cnn")
    parser.add_argument("--matchmaking", type=float, default=5.0, help="hivemind: seconds it looks for peers before an "
                        "average; its guide names 3 to 5 for local runs")
    parser.add_argument("--data", default="/usr/share/datasets/fashion-mnist")
    args = parser.parse_args()

    torch.set_num_threads(1)
    torch.manual_seed(1)
    dist.init_process_group("gloo")
    data = batches(args.data, dist.get_rank(), dist.get_world_size())
    next(data)  # unpacks the files, outside of every measurement
    model, kept = make_model(args.model), []
    optimizer, shut_down = PEERS[args.peer](model, args, kept)
    dist.barrier()
    measured, loss = train(model, optimizer, data, args.period, args.period * args.periods)
    if dist.get_rank() == 0:
        print(json.dumps({
            "peer": args.peer, "torch": torch.__version__, "model": args.model, "period": args.period,
            "workers": dist.get_world_size(), "steps": len(measured),
            "step_ms_median": round(statistics.median(measured), 3),
            "step_ms_mean": round(statistics.mean(measured), 3),
            "samples_per_second": round(1000 * BATCH * dist.get_world_size() * len(measured) / sum(measured), 2),
            "averages": getattr(optimizer, "local_epoch", args.periods + 1), "final_loss": round(loss, 4)}), flush=True)
    dist.barrier()
    shut_down()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
