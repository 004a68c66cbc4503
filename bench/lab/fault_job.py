# SPDX-License-Identifier: Apache-2.0
"""One case of the fault campaign (faults.py): what it is, its processes, and the network they may live in.

Nothing of a job outlives `Job.close`: its processes are known by a mark in their environment, so none is overlooked,
and its network namespaces by a name with our process's number and the case's.
"""
import dataclasses
import os
import signal
import socket
import subprocess
import tempfile
import threading
import time

SIGNALS = {"kill": signal.SIGKILL, "term": signal.SIGTERM, "stop": signal.SIGSTOP}
SUPERVISOR = -1  # where ranks are 0 and more
MARK = "SLIPSTREAM_FAULTS_JOB"
STARTED = "training mlp on"  # said by rank 0 once all ranks are connected
ENDLESS, SHORT = 100_000_000, 20  # steps
stopping = threading.Event()  # Ctrl-C: every wait ends, every case cleans up


class Stopped(Exception):
    pass


def nap(seconds=0.02):
    if stopping.wait(seconds):
        raise Stopped


@dataclasses.dataclass(frozen=True)
class Case:
    index: int
    kind: str
    moment: str
    supervised: bool
    strategy: str
    workers: int
    servers: int
    victim: int  # a rank (servers are the last ones), or SUPERVISOR
    delay: float  # seconds from the sign that the moment has come to the strike
    after_last_step: bool  # moment `end`: counted from the last step; else from the first

    def name(self, rank):
        return ("the supervisor" if rank == SUPERVISOR else
                f"worker {rank}" if rank < self.workers else f"server {rank - self.workers}")

    def host(self):
        """Who holds the rendezvous."""
        return SUPERVISOR if self.supervised else 0

    def __str__(self):
        moment = {"start": "while joining", "mid": "mid-run",
                  "end": "after the last step" if self.after_last_step else "in a short run"}[self.moment]
        how = "supervised" if self.supervised else "by hand"
        return (f"case {self.index}: {self.kind} of {self.name(self.victim)} {moment} + {self.delay:.2f} s; "
                f"{self.strategy}, {self.workers} workers, {self.servers} servers, {how}")


class Net:
    """Hosts 10.77.0.1, 10.77.0.2, … as network namespaces, each on a cable to a switch in a namespace of its own."""

    def __init__(self, name, hosts):
        self.switch, self.hosts = f"{name}-switch", [f"{name}-host{h}" for h in range(hosts)]
        for space in [self.switch, *self.hosts]:
            self.ip("netns", "add", space)
            self.ip("-n", space, "link", "set", "lo", "up")
        self.ip("-n", self.switch, "link", "add", "hub", "type", "bridge")
        self.ip("-n", self.switch, "link", "set", "hub", "up")
        for h, space in enumerate(self.hosts):
            port = f"p{h}"
            self.ip("-n", self.switch, "link", "add", port, "type", "veth", "peer", "name", "e0", "netns", space)
            self.ip("-n", self.switch, "link", "set", port, "master", "hub", "up")
            self.ip("-n", space, "addr", "add", f"10.77.0.{h + 1}/24", "dev", "e0")
            self.ip("-n", space, "link", "set", "e0", "up")

    @staticmethod
    def ip(*words):
        subprocess.run(["ip", *words], check=True, start_new_session=True)

    def cut(self, host):
        self.ip("-n", self.switch, "link", "set", f"p{host}", "down")


def remove_nets(name):
    for space in os.listdir("/run/netns") if os.path.isdir("/run/netns") else []:
        if space.startswith(name + "-"):
            Net.ip("netns", "del", space)


def read(path):
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError:  # a process that is just gone
        return b""


def marked(mark):
    """All processes of a job, wherever they were started. Zombies have no environment any more and do not count."""
    wanted = f"{MARK}={mark}".encode()
    return [int(pid) for pid in os.listdir("/proc")
            if pid.isdigit() and wanted in read(f"/proc/{pid}/environ").split(b"\0")]


def kill_marked(mark):
    while pids := marked(mark):
        for pid in pids:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        time.sleep(0.01)


given_ports = set()
giving = threading.Lock()


def free_port():
    """One that no other job of this campaign was given: they run beside each other, and would meet there."""
    with giving:
        while True:
            with socket.create_server(("127.0.0.1", 0)) as free:
                port = free.getsockname()[1]
            if port not in given_ports:
                given_ports.add(port)
                return port


class Job:
    """The processes of a case, with what they say in files. `pids` has everybody, `programs` those we are parent of."""

    def __init__(self, args, case):
        self.case, self.args, self.mark = case, args, f"{os.getpid()}.{case.index}"
        self.dir = tempfile.mkdtemp(prefix=f"case{case.index}.", dir=args.scratch)
        self.pids, self.programs = {}, {}  # by rank, or SUPERVISOR
        self.ranks = case.workers + case.servers
        self.net, self.net_name = None, f"faults{self.mark}"
        self.too_late = False  # the victim had ended before the strike
        self.culprit = case.victim  # whom the others should name
        self.address = ("10.77.0.1" if case.kind == "cut" else "127.0.0.1", free_port())

    def launch(self):
        case, args = self.case, self.args
        steps = SHORT if case.moment == "end" else ENDLESS
        command = [args.binary, "train", "--task", "images", "--data", args.scratch, "--model", "mlp", "--batch", "16",
                   "--strategy", case.strategy, "--servers", str(case.servers), "--steps", str(steps),
                   "--timeout", str(args.timeout), "--join-timeout", str(args.join_timeout)]
        if case.supervised:
            self.start(SUPERVISOR, [*command, "--workers", str(case.workers)])
            return
        if case.kind == "cut":
            self.net = Net(self.net_name, self.ranks)
        for rank in range(self.ranks):
            inside = ["ip", "netns", "exec", self.net.hosts[rank]] if self.net else []
            self.start(rank, [*inside, *command, "--rank", str(rank), "--world-size", str(self.ranks),
                              "--master-addr", self.address[0], "--master-port", str(self.address[1])])

    def start(self, who, command):
        env = {k: v for k, v in os.environ.items() if k not in ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")}
        env |= {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", MARK: self.mark}
        with open(f"{self.dir}/{who}.out", "wb") as out, open(f"{self.dir}/{who}.err", "wb") as err:
            self.programs[who] = subprocess.Popen(command, env=env, stdin=subprocess.DEVNULL, stdout=out, stderr=err,
                                                  start_new_session=True)
        self.pids[who] = self.programs[who].pid

    def said(self, who, stream="err"):
        return read(f"{self.dir}/{who}.{stream}").decode(errors="replace")

    def find_workers(self):
        """Learns the pids of a supervisor's workers; true once all are known."""
        if len(self.pids) <= self.ranks:
            for pid in marked(self.mark):
                words = read(f"/proc/{pid}/cmdline").split(b"\0")
                if b"--rank" in words:
                    self.pids[int(words[words.index(b"--rank") + 1])] = pid
        return len(self.pids) > self.ranks

    def end_of(self, who):
        """None: it runs. Else its exit code, or minus the signal that killed it, or "?" where only its parent knows."""
        if who in self.programs:
            return self.programs[who].poll()
        fields = read(f"/proc/{self.pids[who]}/stat").decode().rpartition(")")[2].split()
        if not fields:
            return "?"
        return os.waitstatus_to_exitcode(int(fields[49])) if fields[0] in "ZX" else None

    def wait_for_moment(self):
        """False if the job ended before, or did not come so far."""
        case, deadline, speaker = self.case, time.monotonic() + 60, self.case.host()
        last_step = f"step {SHORT}/{SHORT} "
        sign = last_step if case.moment == "end" and case.after_last_step else STARTED
        while True:
            ended = self.end_of(speaker) is not None
            if case.moment == "start":
                come = case.victim == SUPERVISOR or not case.supervised or self.find_workers()
            else:
                come = sign in self.said(speaker)
            if come or ended or time.monotonic() > deadline:
                break
            nap()
            if case.supervised:
                self.find_workers()
        if come and not ended:
            nap(case.delay)
        return come

    def strike(self):
        case = self.case
        self.too_late = case.victim not in self.pids or self.end_of(case.victim) is not None
        if self.too_late:
            return
        if case.kind == "cut":
            self.net.cut(case.victim)
        else:
            os.kill(self.pids[case.victim], SIGNALS[case.kind])
        if case.kind == "term" and case.victim >= case.workers:
            nap(1)  # long enough to see whether it ignores the signal
            if all(self.end_of(who) is None for who in self.pids):
                self.culprit = 0
                os.kill(self.pids[0], signal.SIGTERM)
        if case.supervised:
            self.find_workers()  # once more, for those who were born meanwhile

    def close(self):
        kill_marked(self.mark)
        for program in self.programs.values():
            program.wait()
        remove_nets(self.net_name)
