#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Draws a picture of a comparison, for a page of text: where the time of a step goes, a bar for each contender.

  bench/lab/picture.py runs/results/results.json --model cnn --links 100mbit 100mbit,25ms --out docs/steps.svg

Each link has a panel with an axis of its own. A bar is the mean over all steps of a run, its first ones included, in which
some strategies still measure or warm up. A peer tells only how long it computes; the rest of its step counts as waiting.
"""
import argparse
import json
import sys
from xml.sax.saxutils import escape

LEFT, BAR, GAP, WIDTH, RIGHT = 170, 15, 6, 860, 215
PARTS = (("compute", "computing"), ("encode", "encoding"), ("exposed", "waiting for the network"))
STYLE = """text{font:13px system-ui,sans-serif;fill:#1f2328}.soft{fill:#59636e}.title{font-weight:600;font-size:14px}
.compute{fill:#2f6fb0}.encode{fill:#c98a1b}.exposed{fill:#c2453d}.axis{stroke:#d1d9e0}
@media(prefers-color-scheme:dark){text{fill:#e6edf3}.soft{fill:#9198a1}.compute{fill:#5b9bd8}.encode{fill:#d9a441}
.exposed{fill:#e0645b}.axis{stroke:#3d444d}}"""


def parts_of(row):
    """Milliseconds of a step by part; together they are the mean step."""
    split, step = row["ms_per_step"], row["step_ms"]["median"]
    if split:
        return {"compute": split["compute"] + split["update"], "encode": split["encode"], "exposed": split["exposed"]}
    compute = min(1, row["efficiency"] or 0) * step
    return {"compute": compute, "encode": 0, "exposed": step - compute}


def name_of(row):
    name = row["contender"]
    if not row["peer"]:
        return name
    return "PyTorch DDP" if name == "ddp" else f"DDP, {'PowerSGD' if name.startswith('powersgd') else name} hook"


def result_of(row):
    mean = row["result"]["mean"]
    return f"{mean:.1f} %" if row["metric"] == "test_accuracy_percent" else f"loss {mean:.3f}"


def panel(scenario, top, skip):
    """The lines of a panel and its height."""
    rows = [row for row in scenario["rows"] if row["cells_done"] and row["contender"] not in skip]
    rows.sort(key=lambda row: -sum(parts_of(row).values()))
    longest = max(sum(parts_of(row).values()) for row in rows)
    room = WIDTH - LEFT - RIGHT
    link = {"none": "not shaped"}.get(scenario["link"], scenario["link"])
    lines = [f'<text class="title" x="0" y="{top + 14}">{escape(scenario["model"])}, {escape(link)}, '
             f'{scenario["workers"]} workers: milliseconds of a step</text>']
    y = top + 26
    for row in rows:
        lines.append(f'<text x="{LEFT - 8}" y="{y + 12}" text-anchor="end">{escape(name_of(row))}</text>')
        x = LEFT
        for key, _ in PARTS:
            wide = parts_of(row)[key] / longest * room
            if wide >= 0.2:
                lines.append(f'<rect class="{key}" x="{x:.1f}" y="{y}" width="{wide:.1f}" height="{BAR}"/>')
            x += wide
        speed = row["speedup_over_dense"]["median"]
        times = f", {speed:.1f} × ssgd" if speed else ""
        lines.append(f'<text class="soft" x="{x + 6:.1f}" y="{y + 12}">{sum(parts_of(row).values()):.0f} ms{times}, '
                     f'{result_of(row)}</text>')
        y += BAR + GAP
    lines.append(f'<line class="axis" x1="{LEFT}" x2="{LEFT}" y1="{top + 22}" y2="{y}"/>')
    return lines, y - top + 14


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", help="results.json of `slipstream compare`")
    parser.add_argument("--model", default="cnn")
    parser.add_argument("--links", nargs="+", required=True)
    parser.add_argument("--skip", nargs="+", default=[], help="contenders to leave out")
    parser.add_argument("--out", required=True)
    args = parser.parse_args()
    with open(args.results, encoding="utf-8") as file:
        scenarios = json.load(file)["scenarios"]
    lines, y = [], 0
    for link in args.links:
        found = [s for s in scenarios if s["model"] == args.model and s["link"] == link]
        if not found:
            parser.error(f"{args.results} has no {args.model} at {link}; it has "
                         + "; ".join(sorted({f"{s['model']} at {s['link']}" for s in scenarios})))
        drawn, height = panel(found[0], y, args.skip)
        lines += drawn
        y += height
    x = LEFT
    for key, name in PARTS:
        lines += [f'<rect class="{key}" x="{x}" y="{y}" width="12" height="12"/>',
                  f'<text class="soft" x="{x + 17}" y="{y + 11}">{name}</text>']
        x += 40 + 7 * len(name)
    with open(args.out, "w", encoding="utf-8") as file:
        file.write(f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {y + 18}" role="img" '
                   f'aria-label="Milliseconds of a step by contender">\n<style>{STYLE}</style>\n'
                   + "\n".join(lines) + "\n</svg>\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
