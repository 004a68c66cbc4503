#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The fault campaign: many short training jobs, each disturbed once, and a look at how everybody ends.

A case is a job (strategy, workers, servers, supervised or started by hand), a victim, a moment (while processes join,
mid-run, about when the job ends) and a disturbance: SIGKILL, SIGTERM, SIGSTOP, or a cut of the victim's cable. For cuts
every rank is started by hand in a network namespace of its own, and the switch's side of the cable goes down: nobody
sees a reset, only silence.

What must hold, with `--timeout T` and a margin:
  - every process but the victim ends by itself within T + margin (while joining: the larger of T and --join-timeout),
    a supervisor within --grace more, since it kills what does not end. A rank that was cut off must end as well;
  - with the right exit code: 4 after the loss of a peer, 130 after SIGTERM, 0 only about the job's end. While
    processes join, or for a server, a SIGTERM may also count as a loss. Servers may ignore it, since workers tell them
    when to end: then worker 0 receives one, too;
  - with 4, standard error (of each rank by hand, of the supervised job together) names the victim. Where the others
    wait for a rendezvous host they never met, its address is its name. SIGTERM mid-run leaves partial results;
  - nobody leaves with an error and without a word, and no process is left behind.
A supervisor that is killed takes its workers along: of those only that they are gone is checked.
"""
import argparse
import concurrent.futures
import os
import random
import re
import shlex
import shutil
import signal
import struct
import sys
import tempfile
import time
import typing

from fault_job import SIGNALS, SUPERVISOR, Case, Job, marked, nap, stopping

STRATEGIES = ["ssgd", "lags", "gs", "dasgd", "bsp", "ssd", "osp", "asgd"]
SERVED = {"bsp", "ssd", "osp", "asgd"}  # can have processes that only serve
KINDS = [*SIGNALS, "cut"]
MOMENTS = ["start", "mid", "end"]
FAULTS = ["no start", "hung", "silent", "unnamed", "wrong code", "left behind"]
# What is done to whom, when, how the job was started, the strategy, the numbers of workers and servers.
QUICK = """kill worker start hand ssgd    3 0   kill host   start hand lags 2 0   kill worker     mid hand gs    3 0
           kill host   mid   hand osp     2 0   kill server mid   hand ssd  2 1   kill server     mid sup  bsp   2 2
           kill worker mid   sup  dasgd   3 0   kill supervisor mid sup asgd 2 1  kill worker     end hand ssgd  2 0
           term worker mid   hand lags    3 0   term host   mid   hand asgd 2 0   term supervisor mid sup  ssd   2 1
           term supervisor start sup ssgd 2 0   term server mid   hand osp  2 1   term worker     end sup  gs    2 0
           stop worker mid   hand dasgd   3 0   stop host   mid   hand ssgd 2 0   stop server     mid hand bsp   2 1
           stop supervisor mid sup ssgd   2 0   stop worker mid   sup  ssd  2 0   stop worker   start hand gs    2 0
           cut  worker mid   hand ssgd    3 0   cut  host   mid   hand bsp  2 0   cut  server     mid hand asgd  2 1
           cut  worker start hand dasgd   2 0   cut  worker end   hand osp  2 0"""


def pick_victim(rng, who, supervised, workers, servers):
    return {"supervisor": lambda: SUPERVISOR, "host": lambda: 0,
            "worker": lambda: rng.randrange(0 if supervised else 1, workers),
            "server": lambda: workers + rng.randrange(servers)}[who]()


def make_case(args, index):
    """The same for the same seed, index and lists to choose from."""
    rng = random.Random(f"{args.seed}/{index}")
    if args.quick:
        kind, who, moment, how, strategy, workers, servers = QUICK.split()[7 * index:7 * index + 7]
        workers, servers, supervised = int(workers), int(servers), how == "sup"
    else:
        kind, moment, strategy = rng.choice(args.kinds), rng.choice(MOMENTS), rng.choice(args.strategies)
        workers, servers = rng.choice([2, 3]), rng.choice([0, 1, 2]) if strategy in SERVED else 0
        supervised = kind != "cut" and rng.random() < 0.5
        who = rng.choice(["worker", "supervisor" if supervised else "host"] + ["server"] * (servers > 0))
    late = rng.random() < 0.5
    delay = rng.uniform(0, {"start": 2.0, "mid": 1.0, "end": 0.15 if late else 0.8}[moment])
    return Case(index, kind, moment, supervised, strategy, workers, servers,
                pick_victim(rng, who, supervised, workers, servers), delay, late)


def is_named(job, who):
    """Does what `who` says name the victim? One that is cut off cannot know whose fault it is: any peer will do."""
    case = job.case
    text = re.sub(r"seen by \w+ \d+", "", job.said(case.host() if case.supervised else who))
    if case.kind == "cut" and who == case.victim:
        names = [r"(rank|worker|server) \d"]
    elif job.culprit == SUPERVISOR:
        names = ["supervisor"]
    else:
        names = [rf"rank {job.culprit}\b", rf"{case.name(job.culprit)}\b"]
    if case.moment == "start" and (case.victim == case.host() or who == case.victim):
        names.append(re.escape(job.address[0]) + r":\d")
    return any(re.search(name, text) for name in names)


def allowed_codes(job, who):
    case = job.case
    if job.too_late and case.moment == "end":
        return {0}
    if case.kind == "term":
        codes = {130}
        if case.moment == "start" or job.culprit >= case.workers:
            codes |= {4}
        if case.moment == "start" and who == case.victim:
            codes |= {-signal.SIGTERM}  # before the program could listen
    else:
        codes = {4}
    return codes | {0} if case.moment == "end" else codes


def judge(args, job, codes):
    """[(fault, what was seen)]; `codes`: of those who ended in time."""
    case, faults = job.case, []
    for who in survivors(job):
        name = case.name(who)
        if who not in codes:
            faults.append(("hung", f"{name} still ran after {limit(args, case, who):.0f} s"))
            continue
        if case.supervised and who != SUPERVISOR and (case.victim, case.kind) != (SUPERVISOR, "stop"):
            continue  # its supervisor speaks for it
        code, allowed = codes[who], allowed_codes(job, who)
        if code == "?":
            continue  # its supervisor knew before it froze
        if code not in allowed:
            faults.append(("wrong code", f"{name} ended with {code}, not {' or '.join(map(str, sorted(allowed)))}"))
        if code not in (0, -signal.SIGTERM) and not job.said(case.host() if case.supervised else who).strip():
            faults.append(("silent", f"{name} ended with {code} and said nothing"))
        elif code == 4 and not is_named(job, who):
            faults.append(("unnamed", f"{name} does not name {case.name(job.culprit)}"))
        wants_results = code == 130 and case.moment == "mid" and who == case.host()
        if wants_results and "interrupted after" not in job.said(who, "out"):
            faults.append(("wrong code", f"{name} ended with 130 and without partial results"))
    return faults


def survivors(job):
    """Those who must end by themselves."""
    return [who for who in job.pids if who != job.case.victim or job.case.kind in ("term", "cut")]


def limit(args, case, who):
    patience = max(args.timeout, args.join_timeout) if case.moment == "start" else args.timeout
    return patience + args.margin + (args.grace if who == SUPERVISOR else 0)


def left_behind(job):
    """Pids of the job that still run two seconds later: the kernel takes its time to bury a large process."""
    case = job.case
    frozen = case.kind == "stop" and (not case.supervised or case.victim == SUPERVISOR)  # a frozen one cannot leave,
    ours = [job.pids[case.victim]] if frozen else []  # but no worker, not even that one, outlives its supervisor
    for _ in range(100):
        left = [pid for pid in marked(job.mark) if pid not in ours]
        if not left:
            break
        nap()
    return left


class Result(typing.NamedTuple):
    case: Case
    faults: list  # of (one of FAULTS, what was seen)
    too_late: bool  # the victim had ended before it was struck
    seconds: float | None  # from the strike to the last survivor's end
    said: str  # the last words of each process

    def has(self, fault):
        return any(name == fault for name, _ in self.faults)


def run_case(args, case):
    job = Job(args, case)
    try:
        job.launch()
        if not job.wait_for_moment():
            return Result(case, [("no start", "it did not come so far")], False, None, tails(job))
        job.strike()
        struck, seconds, codes = time.monotonic(), 0.0, {}
        while waiting := [who for who in survivors(job) if who not in codes
                          and time.monotonic() - struck < limit(args, case, who)]:
            for who in waiting:
                if (code := job.end_of(who)) is not None:
                    seconds, codes[who] = time.monotonic() - struck, code
            nap()
        faults = judge(args, job, codes)
        hung = any(who not in codes for who in survivors(job))
        if not hung and (left := left_behind(job)):
            faults.append(("left behind", f"{len(left)} processes are left behind"))
        return Result(case, faults, job.too_late, None if hung or job.too_late else seconds, tails(job))
    finally:
        job.close()


def tails(job):
    return "".join(f"    {job.case.name(who)}: {line}\n" for who in sorted(job.programs)
                   for line in job.said(who).strip().splitlines()[-2:] or ["(nothing)"])


def write_images(where):
    """256 training and 32 test images of 8 x 8 pixels in 10 classes, as IDX files; each class has its own pattern."""
    for name, count in (("train", 256), ("t10k", 32)):
        labels = [i % 10 for i in range(count)]
        pixels = [p * (label + 3) % 11 * 17 + (31 * i + 7 * p) % 64
                  for i, label in enumerate(labels) for p in range(64)]
        with open(f"{where}/{name}-images-idx3-ubyte", "wb") as file:
            file.write(struct.pack(">4I", 0x803, count, 8, 8) + bytes(pixels))
        with open(f"{where}/{name}-labels-idx1-ubyte", "wb") as file:
            file.write(struct.pack(">2I", 0x801, count) + bytes(labels))


def table(results):
    print(f"| disturbance | cases | ok | {' | '.join(FAULTS)} | struck too late | p50 s | p99 s |")
    print("|---" + "|---:" * (len(FAULTS) + 5) + "|")
    for kind in [*KINDS, "all"]:
        mine = [result for result in results if kind in (result.case.kind, "all")]
        times = sorted(result.seconds for result in mine if result.seconds is not None)
        if mine:
            ok = sum(not result.faults for result in mine)
            counts = [sum(result.has(fault) for result in mine) for fault in FAULTS]
            late = sum(result.too_late for result in mine)
            ends = [f"{times[round(q * (len(times) - 1))]:.1f}" if times else "–" for q in (0.5, 0.99)]
            print(f"| {kind} | {' | '.join(map(str, [len(mine), ok, *counts, late, *ends]))} |")


def words(text):
    return [word for word in text.split(",") if word]


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--binary", required=True, help="the slipstream program")
    parser.add_argument("--count", type=int, default=300, help="cases (default %(default)s)")
    parser.add_argument("--seed", type=int, default=1, help="of all random choices (default %(default)s)")
    parser.add_argument("--only", type=int, metavar="K", help="case K alone")
    parser.add_argument("--quick", action="store_true", help="a fixed list of 26 cases with every kind of victim, "
                        "disturbance and moment, 3 at a time")
    parser.add_argument("--kinds", type=words, default=KINDS, help="of disturbance, such as kill,term,stop,cut")
    parser.add_argument("--strategies", type=words, default=STRATEGIES, help="such as " + ",".join(STRATEGIES))
    parser.add_argument("--timeout", type=float, default=5, help="of the jobs, in seconds (default %(default)s)")
    parser.add_argument("--join-timeout", type=float, default=10, help="of the jobs, in seconds (default %(default)s)")
    parser.add_argument("--margin", type=float, default=5, help="seconds on top (default %(default)s)")
    parser.add_argument("--grace", type=float, default=10, help="seconds more for a supervisor (default %(default)s)")
    parser.add_argument("--jobs", type=int, help="cases at a time (default 1; 3 with --quick)")
    args = parser.parse_args()
    for given, known in ((args.kinds, KINDS), (args.strategies, STRATEGIES)):
        if not given or set(given) - set(known):
            parser.error(f"{','.join(given) or 'nothing'}: choose from {','.join(known)}")
    if not os.access(args.binary, os.X_OK):
        parser.error(f"there is no program {args.binary}")
    args.jobs = args.jobs or (3 if args.quick else 1)
    if args.jobs < 1 or args.count < 1:
        parser.error("--jobs and --count must be at least 1")
    args.count = len(QUICK.split()) // 7 if args.quick else args.count
    if args.only is not None and not 0 <= args.only < (args.count if args.quick else 10**9):
        parser.error(f"there is no case {args.only}")
    return args


def repeat_command(args, case):
    """What runs this case alone."""
    same = ["--seed", str(args.seed), "--timeout", f"{args.timeout:g}", "--join-timeout", f"{args.join_timeout:g}"]
    lists = ["--kinds", ",".join(args.kinds)] if args.kinds != KINDS else []
    lists += ["--strategies", ",".join(args.strategies)] if args.strategies != STRATEGIES else []
    return shlex.join(["./run", "bench", "faults", *["--quick"] * args.quick, *same, *lists, "--only", str(case.index)])


def main():
    args = parse()
    cases = [make_case(args, index) for index in (range(args.count) if args.only is None else [args.only])]
    if os.geteuid() != 0 and any(case.kind == "cut" for case in cases):
        cases = [case for case in cases if case.kind != "cut"]
        print("cutting cables needs root: those cases are left out", file=sys.stderr)
    for number in (signal.SIGINT, signal.SIGTERM):  # also where a shell started us in the background
        signal.signal(number, signal.default_int_handler)
    args.scratch, results = tempfile.mkdtemp(prefix="slipstream-faults."), []
    pool = concurrent.futures.ThreadPoolExecutor(args.jobs)
    try:
        write_images(args.scratch)
        for future in concurrent.futures.as_completed([pool.submit(run_case, args, case) for case in cases]):
            result = future.result()
            results.append(result)
            if result.faults:
                print(f"{result.case}: " + "; ".join(f"{fault.upper()}: {seen}" for fault, seen in result.faults) +
                      f"\n{result.said}    again: {repeat_command(args, result.case)}", flush=True)
            if result.faults or len(results) % 10 == 0:
                failed = sum(bool(each.faults) for each in results)
                print(f"{len(results)} of {len(cases)} cases, {failed} failed", file=sys.stderr)
    except KeyboardInterrupt:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # cleaning up takes a moment
        print("interrupted", file=sys.stderr)
    finally:
        stopping.set()
        pool.shutdown(cancel_futures=True)
        shutil.rmtree(args.scratch, ignore_errors=True)
    table(results)
    return 130 if len(results) < len(cases) else int(any(result.faults for result in results))


if __name__ == "__main__":
    sys.exit(main())
