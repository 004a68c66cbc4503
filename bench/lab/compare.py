#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Slipstream's strategies against PyTorch DDP on the same shaped network: one Markdown table.

Runs of all contenders alternate, `--repeats` times, so that whatever else the machine does hits them alike. Times are
the medians of the repeats with their extremes. The last column is a ratio inside each repeat, then its median: samples
per second over those of the reference, the first peer. Needs root (the lab) and Debian's python3-torch (the peers).

  compare.py --binary build/slipstream --models cnn --rates 100mbit 1gbit 100mbit,25ms \\
      --strategies ssgd local:period=8 --peers ddp fp16 powersgd1@1000

A strategy is NAME or NAME:KEY=VALUE,KEY=VALUE (each pair becomes `--set`). A peer is ddp, fp16, powersgd1 or powersgd4;
hook-STRATEGY is our hook under DDP and python-STRATEGY our Python loop (both need the module on PYTHONPATH, as ./run
bench lab sets it); NAME@MB sets the size of DDP's buckets (1000: all in one, without which PowerSGD over Gloo often aborts).
"""
import argparse
import json
import os
import shlex
import statistics
import subprocess
import sys

PEER = os.path.relpath(os.path.join(os.path.dirname(os.path.abspath(__file__)), "peer_ddp.py"))
HOOKS = {"ddp": "none", "fp16": "fp16", "powersgd1": "powersgd1", "powersgd4": "powersgd4"}
FIELDS = ("step_ms_median", "compute_ms_median", "samples_per_second")


def strategy_flags(text):
    """The flags behind NAME:KEY=VALUE,KEY=VALUE."""
    name, _, options = text.partition(":")
    pairs = [word for pair in filter(None, options.split(",")) for word in ("--set", pair)]
    return ["--strategy", name, *pairs]


def strategy_command(args, text, model, rate):
    return [args.binary, "train", "--workers", str(args.workers), *strategy_flags(text), "--task", "fashion-mnist",
            "--model", model, "--steps", str(args.steps), "--lab", rate, "--json"]


def peer_command(args, text, model, rate):
    name, _, bucket_mb = text.partition("@")
    command = [args.binary, "lab", "--hosts", str(args.workers), "--rate", rate, "--", args.python, PEER,
               "--model", model, "--steps", str(args.steps), "--hook", HOOKS.get(name, name)]
    return command + (["--bucket-mb", bucket_mb] if bucket_mb else [])


def last_json(text):
    for line in reversed(text.splitlines()):
        if line.startswith("{"):
            return json.loads(line)
    raise ValueError("no JSON line on its standard output")


def run(command, timeout_s):
    """The run's JSON summary, or a dict with the single key `failed`."""
    one_thread = dict(os.environ, OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1")
    try:
        done = subprocess.run(command, env=one_thread, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, text=True, timeout=timeout_s)
    except subprocess.TimeoutExpired:  # killed; no process of the lab outlives its supervisor
        return {"failed": f"no end after {timeout_s} s"}
    if done.returncode != 0:
        said = [line.strip() for line in done.stderr.splitlines() if line.strip()] or ["it said nothing"]
        reason = next((line for line in said if "error" in line.lower()), said[-1])  # the first one is the cause
        return {"failed": f"exit code {done.returncode}: {reason}"}
    try:
        summary = last_json(done.stdout)
        return {**summary, **{field: float(summary[field]) for field in FIELDS}}
    except (KeyError, ValueError) as error:
        return {"failed": f"its output lacks {error}"}


def measure(args, model, rate):
    """{contender: [result of each repeat]}, alternating."""
    contenders = {text: peer_command(args, text, model, rate) for text in args.peers}
    contenders |= {text: strategy_command(args, text, model, rate) for text in args.strategies}
    results = {name: [] for name in contenders}
    for repeat in range(args.repeats):
        for name, command in contenders.items():
            result = run(command, args.timeout)
            results[name].append(result)
            outcome = result.get("failed") or f"{result['step_ms_median']:.1f} ms a step"
            print(f"{model} {rate} {name}, repeat {repeat + 1} of {args.repeats}: {outcome}", file=sys.stderr)
            if args.raw:
                with open(args.raw, "a", encoding="utf-8") as file:
                    record = {"model": model, "rate": rate, "contender": name, "repeat": repeat, **result}
                    file.write(json.dumps(record) + "\n")
    return contenders, results


def ratio(mine, reference):
    """Median of the ratios inside the repeats in which both came through."""
    pairs = [(a["samples_per_second"], b["samples_per_second"]) for a, b in zip(mine, reference)
             if "failed" not in a and "failed" not in b]
    return f"{statistics.median(a / b for a, b in pairs):.2f}" if pairs else "–"


def row(model, rate, name, results, reference):
    good = [result for result in results if "failed" not in result]
    head = f"| {model} | {rate} | {name} |"
    if not good:
        return f"{head} failed {len(results)} of {len(results)} | – | – | – | – |"
    steps = [result["step_ms_median"] for result in good]
    compute = statistics.median(result["compute_ms_median"] for result in good)
    efficiency = statistics.median(result["compute_ms_median"] / result["step_ms_median"] for result in good)
    samples = statistics.median(result["samples_per_second"] for result in good)
    lost = "" if len(good) == len(results) else f", failed {len(results) - len(good)} of {len(results)}"
    return (f"{head} {statistics.median(steps):.1f} ({min(steps):.1f}–{max(steps):.1f}){lost} | {compute:.1f} | "
            f"{100 * efficiency:.0f} % | {samples:.0f} | {ratio(results, reference)} |")


def words(values):
    """`a,b c` and `a b c` alike."""
    return [word for value in values for word in value.split(",") if word]


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--binary", required=True, help="the slipstream program")
    parser.add_argument("--models", nargs="+", default=["cnn"], help="mlp, cnn")
    parser.add_argument("--rates", nargs="+", default=["100mbit"], help="separated by spaces: 100mbit none 100mbit,25ms 1gbit,5ms,0.1%%")
    parser.add_argument("--strategies", nargs="*", default=["ssgd"], help="separated by spaces")
    parser.add_argument("--peers", nargs="*", default=["ddp"], help="the first is the reference")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--timeout", type=int, default=600, help="seconds after which a run counts as failed")
    parser.add_argument("--python", default="/usr/bin/python3", help="the interpreter that has torch")
    parser.add_argument("--raw", help="a file that receives every run as a JSON line")
    args = parser.parse_args()
    args.models, args.peers = words(args.models), words(args.peers)
    for peer in args.peers:
        name, at, bucket_mb = peer.partition("@")
        if not (name in HOOKS or name.startswith(("hook-", "python-"))) or (at and not bucket_mb.isdigit()):
            parser.error(f"unknown peer {peer}: one of {', '.join(HOOKS)}, hook-STRATEGY, python-STRATEGY, or with a "
                         f"bucket size, {name}@1000")
    if not args.peers + args.strategies:
        parser.error("nothing to run: give --strategies, --peers or both")
    if min(args.repeats, args.steps, args.workers) < 1:
        parser.error("--repeats, --steps and --workers must be at least 1")
    return args


def main():
    args = parse()
    rows, commands, failures = [], [], []
    for model in args.models:
        for rate in args.rates:
            contenders, results = measure(args, model, rate)
            reference = results[(args.peers + args.strategies)[0]]
            for name, command in contenders.items():
                rows.append(row(model, rate, name, results[name], reference))
                commands.append(f"- {model}, {rate}, {name}: `{shlex.join(command)}`")
                failures += [f"- {model}, {rate}, {name}: {result['failed']}" for result in results[name]
                             if "failed" in result]
    print(f"| model | rate | contender | step ms, median of {args.repeats} (min–max) | compute ms | efficiency | "
          f"samples/s | × {(args.peers + args.strategies)[0]} |\n|---|---|---|---|---|---|---|---|")
    print("\n".join(rows))
    print("\nCommands:\n\n" + "\n".join(commands))
    if failures:
        print("\nFailed runs:\n\n" + "\n".join(failures))
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
