#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What each strategy's savings cost in accuracy: one Markdown table, a column for every seed.

All strategies see the same samples in the same number of steps from the same first weights. The last column is the
difference of the mean to that of the first strategy, in points.

  accuracy.py --binary build/slipstream --strategies ssgd lags gs dasgd:merge=lerp --workers 4 --epochs 3 --seeds 1 2 3

Workers beyond the number of cores share them: that changes the times, not the result.
"""
import argparse
import json
import statistics
import sys

from compare import run, strategy_flags


def command(args, text, seed):
    return [args.binary, "train", "--task", args.task, "--model", args.model, "--workers", str(args.workers),
            "--epochs", str(args.epochs), "--seed", str(seed), *strategy_flags(text), "--json"]


def measure(args):
    """{strategy: [accuracy in % by seed]}; a failed run is None."""
    found = {text: [] for text in args.strategies}
    for seed in args.seeds:
        for text in args.strategies:
            result = run(command(args, text, seed), args.timeout)
            accuracy = None if "failed" in result else 100 * result["test_accuracy"]
            found[text].append(accuracy)
            print(f"{text}, seed {seed}: " + (result.get("failed") or f"{accuracy:.2f} %"), file=sys.stderr)
            if args.raw:
                with open(args.raw, "a", encoding="utf-8") as file:
                    file.write(json.dumps({"contender": text, "seed": seed, **result}) + "\n")
    return found


def table(args, found):
    lines = ["| strategy | " + " | ".join(f"seed {seed}" for seed in args.seeds) + " | mean | difference |",
             "|---|" + "---:|" * (len(args.seeds) + 2)]
    means = {text: statistics.mean(values) if None not in values else None for text, values in found.items()}
    first = means[args.strategies[0]]
    for text, values in found.items():
        cells = ["failed" if value is None else f"{value:.2f}" for value in values]
        mean = means[text]
        cells.append("–" if mean is None else f"{mean:.2f}")
        cells.append("–" if mean is None or first is None else f"{mean - first:+.2f}")
        lines.append(f"| {text} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--binary", required=True, help="the slipstream program")
    parser.add_argument("--strategies", nargs="+", default=["ssgd"], help="NAME or NAME:KEY=VALUE,…; the first is the "
                        "reference")
    parser.add_argument("--seeds", nargs="+", type=int, default=[1, 2, 3])
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--task", default="fashion-mnist")
    parser.add_argument("--model", default="cnn")
    parser.add_argument("--timeout", type=float, default=3600, help="seconds for one run")
    parser.add_argument("--raw", help="append every run's summary to this file, a line of JSON each")
    return parser.parse_args()


if __name__ == "__main__":
    ARGS = parse()
    print(table(ARGS, measure(ARGS)))
