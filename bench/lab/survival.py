#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Elastic jobs under faults: do they go on, how fast, and what does it cost in accuracy?

Each strategy trains the same job undisturbed and with `--chaos`, for as many seeds as it takes to reach --faults in all.
A disturbed run must end by itself with exit code 0, bit-identical weights on all workers and no process left. The
recovery is what the ledgers of all workers tell: from the moment a worker notices a loss until its next group trains,
the longest of a group's workers.

  ./run bench survival                                   # 20 kills in each of seven strategies, with accuracies
  ./run bench survival --soak --faults 1200              # many short runs; kills and freezes
"""
import argparse
import collections
import glob
import json
import os
import re
import shlex
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

FIVE_AND_DENSE = ["ssgd", "bsp", "lags", "gs", "dasgd", "ssd", "osp"]
FLAGS = "--task fashion-mnist --model cnn --lr 0.05 --momentum 0.9 --weight-decay 5e-4 --epochs 1"
SOAK_FLAGS = "--task fashion-mnist --model mlp --batch 8 --lr 0.02 --steps 1200"


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--binary", required=True, help="the slipstream program")
    parser.add_argument("--strategies", default=",".join(FIVE_AND_DENSE), help="default %(default)s")
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--elastic", default="1:4", help="default %(default)s")
    parser.add_argument("--chaos", help="of each disturbed run (default kills=20; with --soak kills=30,freezes=1)")
    parser.add_argument("--faults", type=int, default=0, help="go on with further seeds until there were so many in all")
    parser.add_argument("--soak", action="store_true", help="short cheap runs, no undisturbed ones")
    parser.add_argument("--flags", help=f"of the training (default {FLAGS}; with --soak {SOAK_FLAGS})")
    parser.add_argument("--timeout", type=float, default=5, help="after which a frozen worker is given up")
    parser.add_argument("--limit", type=float, default=1200, help="seconds for one run: more is a hang")
    args = parser.parse_args()
    args.chaos = args.chaos or ("kills=30,freezes=1" if args.soak else "kills=20")
    args.flags = args.flags or (SOAK_FLAGS if args.soak else FLAGS)
    if not os.access(args.binary, os.X_OK):
        parser.error(f"there is no program {args.binary}")
    return args


def run(args, strategy, seed, out, more):
    """One run: its exit code, what it said, and whether it had to be stopped."""
    command = [args.binary, "train", "--workers", str(args.workers), "--strategy", strategy, "--seed", str(seed),
               "--timeout", f"{args.timeout:g}", "--out", out, *shlex.split(args.flags), *more]
    marked = dict(os.environ, SLIPSTREAM_SURVIVAL=out)
    job = subprocess.Popen(command, env=marked, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                           start_new_session=True)
    try:
        said, _ = job.communicate(timeout=args.limit)
        return job.returncode, said, False
    except subprocess.TimeoutExpired:
        os.killpg(job.pid, 9)
        said, _ = job.communicate()
        return job.returncode, said, True


def left_behind(out):
    """Processes that carry the mark of this run."""
    found = []
    for path in glob.glob("/proc/[0-9]*/environ"):
        try:
            with open(path, "rb") as file:
                if f"SLIPSTREAM_SURVIVAL={out}\0".encode() in file.read() + b"\0":
                    found.append(path.split("/")[2])
        except OSError:
            pass
    return found


def recoveries(out):
    """Seconds by group that followed a loss: the longest of its workers."""
    longest = collections.defaultdict(float)
    for path in glob.glob(os.path.join(out, "ledger.rank*.jsonl")):
        with open(path) as file:
            for line in file:
                entry = json.loads(line)
                if entry.get("lost", 0) > 0:
                    longest[entry["regroup"]] = max(longest[entry["regroup"]], entry["recovery_ms"] / 1e3)
    return list(longest.values())


def metric(out):
    with open(os.path.join(out, "summary.json")) as file:
        summary = json.load(file)
    return summary.get("test_accuracy", summary.get("test_loss")), summary["agreement"]


def main():
    args = parse()
    strategies = args.strategies.split(",")
    scratch = tempfile.mkdtemp(prefix="slipstream-survival.")
    rows = {name: {"plain": [], "disturbed": [], "recoveries": [], "faults": 0, "runs": 0, "wrong": []}
            for name in strategies}
    began, total, seed, interrupted = time.time(), 0, 0, False
    try:
        while seed == 0 or total < args.faults:
            seed += 1
            for name in strategies:
                row, out = rows[name], os.path.join(scratch, f"{name}-{seed}")
                if not args.soak:
                    code, said, _ = run(args, name, seed, out + "-plain", [])
                    if code != 0:
                        sys.exit(f"the undisturbed run of {name} ended with {code}:\n{said}")
                    row["plain"].append(metric(out + "-plain")[0])
                code, said, hung = run(args, name, seed, out,
                                       ["--elastic", args.elastic, "--chaos", args.chaos, "--chaos-seed", str(seed),
                                        "--max-restarts", "100000"])
                faults = len(re.findall(r"^chaos: (?:kill|freeze|cut) ", said, re.MULTILINE))
                row["faults"] += faults
                row["runs"] += 1
                total += faults
                agreed = False
                if code == 0:
                    value, agreed = metric(out)
                    row["disturbed"].append(value)
                    row["recoveries"] += recoveries(out)
                why = "hung" if hung else f"ended with {code}" if code != 0 else "" if agreed else "disagreed"
                remaining = left_behind(out)
                why = why or (f"left {', '.join(remaining)} behind" if remaining else "")
                if why:
                    row["wrong"].append(f"seed {seed}: {why}")
                    print(f"{name}, seed {seed}: {why}\n{said[-3000:]}", flush=True)
                shutil.rmtree(out, ignore_errors=True)
                shutil.rmtree(out + "-plain", ignore_errors=True)
                print(f"{name}, seed {seed}: {faults} faults, {total} in all, {time.time() - began:.0f} s",
                      file=sys.stderr, flush=True)
                if args.faults and total >= args.faults:
                    break
    except KeyboardInterrupt:
        interrupted = True
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    print("| strategy | runs | faults | undisturbed | disturbed | recovery: median | p99 | longest | wrong |")
    print("|---|---|---|---|---|---|---|---|---|")
    everything = []
    for name, row in rows.items():
        times = sorted(row["recoveries"])
        everything += times
        mean = [f"{statistics.mean(row[key]):.4f}" if row[key] else "–" for key in ("plain", "disturbed")]
        print(f"| {name} | {row['runs']} | {row['faults']} | {' | '.join(mean)} | {' | '.join(quantiles(times))} | "
              f"{len(row['wrong'])} |")
    print(f"| all | {sum(row['runs'] for row in rows.values())} | {total} | | | {' | '.join(quantiles(sorted(everything)))}"
          f" | {sum(len(row['wrong']) for row in rows.values())} |")
    return 130 if interrupted else int(any(row["wrong"] for row in rows.values()))


def quantiles(times):
    if not times:
        return ["–"] * 3
    return [f"{times[round(q * (len(times) - 1))]:.2f} s" for q in (0.5, 0.99, 1)]


if __name__ == "__main__":
    sys.exit(main())
