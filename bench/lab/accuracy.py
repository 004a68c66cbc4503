#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What each strategy's savings cost in accuracy or loss, and whether the bounds of the proof hold: Markdown tables.

All strategies see the same samples in the same number of steps from the same first weights. Either recipes from
recipes.py, or one made of flags; what follows `--` goes to the program as it is:

  accuracy.py --binary build/release/slipstream --recipes text-adamw cnn-1 --text data.txt --cells cells.jsonl
  accuracy.py --binary build/release/slipstream --strategies ssgd lags gs dasgd:merge=lerp --seeds 1 2 3 -- --epochs 3

A cell is one run: a recipe's contender with one seed. Finished cells are kept in the file `--cells` and not run again,
as long as their command is the same; `--again NAME…` runs the cells of these strategies once more (after a change of
the program, which no file can know about). Cells run one after another, all contenders of a seed before the next seed,
so that an interrupted proof still compares like with like. Workers beyond the number of cores share them: that changes
the times, not the result. `bytes ÷ dense` is what a worker sends and receives in a step, next to a dense sum's
2 (P-1)/P × 4 bytes × parameters each way; the traffic of a server that lives in the worker's process is not in it, so
that `bsp` has 0.5.

The exit code is 1 where a bound does not hold or a run failed, and 3 where `--minutes` were over before the end.
"""
import argparse
import json
import os
import shlex
import statistics
import sys
import time

from compare import run, strategy_flags
from recipes import RECIPES, Recipe

OVERRUN = 3


def command(args, recipe, contender, seed):
    is_reference = contender == next(iter(recipe.limits))
    chosen = recipe.reference_flags if is_reference and recipe.reference_flags else recipe.flags
    flags = [flag.format(text=args.text) for flag in shlex.split(chosen)]
    return [args.binary, "train", *flags, "--seed", str(seed), *strategy_flags(contender), "--json"]


class Cells:
    """Finished runs by recipe, contender and seed. A line of the file each; the last line of a key counts."""

    def __init__(self, path):
        self.path, self.found = path, {}
        if path and os.path.exists(path):
            with open(path, encoding="utf-8") as file:
                for line in file:
                    cell = json.loads(line)
                    self.found[self.key(cell["command"])] = cell["result"]

    @staticmethod
    def key(words):
        return tuple(words[1:])  # the program may lie elsewhere

    def get(self, words):
        return self.found.get(self.key(words))

    def finished(self, words):
        return "failed" not in self.found.get(self.key(words), {"failed": True})

    def put(self, recipe, contender, seed, words, result):
        self.found[self.key(words)] = result
        if self.path:
            with open(self.path, "a", encoding="utf-8") as file:
                cell = {"recipe": recipe, "contender": contender, "seed": seed, "command": words, "result": result}
                file.write(json.dumps(cell) + "\n")


def better_high(result):
    return "test_accuracy" in result


def score(result):
    """Accuracy in % or loss; None where the run failed, infinity where it diverged."""
    if result is None or "failed" in result:
        return None
    value = result["test_accuracy"] if better_high(result) else result["test_loss"]
    if value is None:
        return float("-inf") if better_high(result) else float("inf")
    return 100 * value if better_high(result) else value


def fill(args, recipes, cells):
    """Runs what is missing. False where the time was over before."""
    rerun = set(args.again)
    for recipe in recipes:
        for seed in args.seeds or recipe.seeds:
            for contender in recipe.limits:
                words = command(args, recipe, contender, seed)
                if cells.finished(words) and not rerun & {contender, contender.partition(":")[0]}:
                    continue
                if time.monotonic() > args.until:
                    return False
                begin = time.monotonic()
                result = run(words, args.timeout)
                cells.put(recipe.name, contender, seed, words, result)
                outcome = result.get("failed") or f"{score(result):.4g} in {time.monotonic() - begin:.0f} s"
                print(f"{recipe.name} {contender}, seed {seed}: {outcome}", file=sys.stderr, flush=True)
    return True


def traffic(result):
    """Bytes a worker moves in a step, mean of both ways."""
    return (result["bytes_sent_per_step"] + result["bytes_received_per_step"]) / 2


class Row:
    """A contender's results over the seeds, next to the reference's."""

    def __init__(self, args, recipe, cells, contender):
        reference = next(iter(recipe.limits))
        self.name, self.limit = contender, recipe.limits[contender]
        self.seeds = args.seeds or recipe.seeds
        results = [cells.get(command(args, recipe, contender, seed)) for seed in self.seeds]
        others = [cells.get(command(args, recipe, reference, seed)) for seed in self.seeds]
        self.scores = [score(result) for result in results]
        good = [result for result in results if score(result) is not None]
        self.higher_wins = any(better_high(result) for result in good)
        self.mean = statistics.mean(score(result) for result in good) if len(good) == len(results) else None
        self.bytes = statistics.mean(traffic(result) for result in good) if good else None
        self.dense = good and 2 * (good[0]["workers"] - 1) / good[0]["workers"] * 4 * good[0]["parameters"]
        self.minutes = statistics.mean(result["wall_seconds"] for result in good) / 60 if good else None
        pairs = [(score(a), score(b)) for a, b in zip(results, others) if score(a) is not None and score(b) is not None]
        self.lost = [self.loss_of(a, b) for a, b in pairs]  # by seed: how much worse than the reference

    def loss_of(self, mine, reference):
        return reference - mine if self.higher_wins else 100 * (mine / reference - 1)

    def cells(self):
        complete = len(self.lost) == len(self.scores)
        yield self.name
        digits = 2 if self.higher_wins else 4
        yield from ("–" if value is None else f"{value:.{digits}f}" for value in [*self.scores, self.mean])
        sign = -1 if self.higher_wins else 1
        unit = "" if self.higher_wins else " %"
        yield f"{sign * statistics.mean(self.lost) + 0.0:+.2f}{unit}" if complete else "–"
        yield f"{self.bytes / self.dense:.3f}" if self.bytes is not None else "–"
        yield "" if self.limit is None else f"{self.limit:g}{unit or ' points'}"
        yield "" if self.limit is None else "not run" if not complete else "yes" if self.holds() else "**no**"

    def holds(self):
        return self.limit is None or (len(self.lost) == len(self.scores) and statistics.mean(self.lost) <= self.limit)


def judge(claim, rows):
    """What a claim says, and whether it holds; None where a run is missing."""
    kind, who, *rest = claim
    named = [rows[name] for name in (who if kind == "rising" else [who, rest[0]] if kind == "no worse" else [who])]
    missing = any(row.mean is None for row in named)
    if kind == "no worse":
        (a, b), share = named, rest[1]
        said = f"{a.name} is no worse than {b.name} at up to {share:g} × its bytes"
        if missing:
            return said, None
        cost = a.bytes / b.bytes
        ahead = a.mean >= b.mean if a.higher_wins else a.mean <= b.mean
        return f"{said} ({a.mean:.4g} against {b.mean:.4g}, {cost:.2f} × the bytes)", ahead and cost <= share
    if kind == "bytes":
        said = f"{who} sends at most {rest[0]:.3f} of dense"
        return (said, None) if missing else (f"{said} ({named[0].bytes / named[0].dense:.3f})",
                                             named[0].bytes <= rest[0] * named[0].dense)
    if kind == "formula":
        said = f"{who} sends {rest[0]:g} × 2 (P-1)/P × 4 bytes × parameters"
        return (said, None) if missing else (f"{said} ({named[0].bytes / named[0].dense:.3f})",
                                             abs(named[0].bytes / named[0].dense / rest[0] - 1) < 0.02)
    assert kind == "rising", kind
    said = f"a higher density is never worse by more than {rest[0]:g}: {', '.join(who)}"
    if missing:
        return said, None
    means = [row.mean if row.higher_wins else -row.mean for row in named]
    return said, all(after >= before - rest[0] for before, after in zip(means, means[1:]))


def report(args, recipe, cells):
    """Prints the recipe's table; how many bounds do not hold (or are not known)."""
    rows = {contender: Row(args, recipe, cells, contender) for contender in recipe.limits}
    seeds = args.seeds or recipe.seeds
    print(f"\n### {recipe.name}\n\n{recipe.about}\n")
    print(f"`slipstream train {recipe.flags.format(text='data.txt')} --seed SEED --strategy …`\n")
    print("| strategy | " + " | ".join(f"seed {seed}" for seed in seeds) + " | mean | difference | bytes ÷ dense | "
          "limit | holds |\n|---|" + "---:|" * (len(seeds) + 4) + "---|")
    for row in rows.values():
        print("| " + " | ".join(row.cells()) + " |")
    misses = sum(not row.holds() for row in rows.values())
    verdicts = [judge(claim, rows) for claim in recipe.claims]
    if verdicts:
        print()
    for said, holds in verdicts:
        print(f"- {said}: " + ("not run" if holds is None else "yes" if holds else "**no**"))
    for contender in rows:
        for seed in seeds:
            result = cells.get(command(args, recipe, contender, seed)) or {}
            if "failed" in result:
                print(f"- failed: {contender}, seed {seed}: {result['failed']}")
    return misses + sum(not holds for _, holds in verdicts)


def parse():
    words = sys.argv[1:]
    cut = words.index("--") if "--" in words else len(words)
    names = [recipe.name for recipe in RECIPES]
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--binary", required=True, help="the slipstream program")
    parser.add_argument("--recipes", nargs="+", choices=[*names, "all"], metavar="NAME", default=[],
                        help="all, or some of " + ", ".join(names))
    parser.add_argument("--strategies", nargs="+", help="NAME or NAME:KEY=VALUE,…; the first is the reference; with "
                        "recipes: only these of theirs, next to the reference")
    parser.add_argument("--seeds", nargs="+", type=int, help="default: the recipe's, or 1 2 3")
    parser.add_argument("--workers", type=int, default=4, help="without recipes")
    parser.add_argument("--epochs", type=int, default=3, help="without recipes")
    parser.add_argument("--task", default="fashion-mnist", help="without recipes")
    parser.add_argument("--model", default="cnn", help="without recipes")
    parser.add_argument("--text", default="data.txt", help="the text of the recipes that train on text")
    parser.add_argument("--cells", "--raw", help="file that keeps the runs, a line of JSON each, for the next time")
    parser.add_argument("--again", nargs="+", default=[], metavar="STRATEGY", help="run their cells once more")
    parser.add_argument("--timeout", type=float, default=900, help="seconds after which a run counts as failed")
    parser.add_argument("--minutes", type=float, default=1e6, help="begin no run after so many minutes")
    parser.add_argument("--report", action="store_true", help="run nothing: print the tables of what is in --cells")
    args = parser.parse_args(words[:cut])
    args.until = time.monotonic() + (60 * args.minutes if not args.report else -1)
    return args, words[cut + 1:]


def chosen(args, more):
    if not args.recipes:
        flags = shlex.join(["--task", args.task, "--model", args.model, "--workers", str(args.workers), "--epochs",
                            str(args.epochs), *more])
        limits = dict.fromkeys(args.strategies or ["ssgd"])
        return [Recipe("given", "the flags given", flags, limits, args.seeds or [1, 2, 3])]
    recipes = [recipe for recipe in RECIPES if recipe.name in args.recipes or "all" in args.recipes]
    for recipe in recipes:
        recipe.flags = " ".join([recipe.flags, shlex.join(more)]).strip()
        if recipe.reference_flags:
            recipe.reference_flags = " ".join([recipe.reference_flags, shlex.join(more)]).strip()
        if args.strategies:
            kept = [name for name in recipe.limits if {name, name.partition(":")[0]} & set(args.strategies)]
            kept = dict.fromkeys([next(iter(recipe.limits)), *kept])
            recipe.limits = {name: recipe.limits[name] for name in kept}
            recipe.claims = [claim for claim in recipe.claims if mentioned(claim) <= set(recipe.limits)]
    return recipes


def mentioned(claim):
    """The contenders a claim is about."""
    kind, who, *rest = claim
    return set(who) if kind == "rising" else {who, rest[0]} if kind == "no worse" else {who}


def main():
    args, more = parse()
    recipes, cells = chosen(args, more), Cells(args.cells)
    complete = fill(args, recipes, cells)
    misses = sum([report(args, recipe, cells) for recipe in recipes])
    return OVERRUN if not complete and not args.report else 1 if misses else 0


if __name__ == "__main__":
    sys.exit(main())
