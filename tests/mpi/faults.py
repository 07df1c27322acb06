# SPDX-License-Identifier: Apache-2.0
"""Trainings of several processes, on one host or on two, with faults of all kinds: no job hangs, each process says what it has
waited for, no checkpoint is lost, and the run that goes on ends with the bits of one that had no fault. With --survive, kills under
`mpirun --with-ft ulfm`, after which the processes that are left go on by themselves. tests/mpi/faults starts it."""

import argparse
import dataclasses
import filecmp
import json
import os
import pathlib
import random
import re
import shlex
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "benchmarks"))
import machine

FOLDER = pathlib.Path(os.environ.get("HOSTS_FOLDER", "/nonexistent"))
RULE = ""  # by which replicas agree on a centre, or "pipeline", and a colon
RULES = {
    "periodic": "`Periodic`, every 2 steps",
    "elastic": "`ElasticAveraging`, every 2 steps",
    "downpour": "`Asynchronous<Downpour>`, round robin, on one host",
    "easgd": "`Asynchronous<Elastic>`, round robin, on one host",
    "hogwild": "`Hogwild`, on one host",
}
# The processes of these have their centre in memory that they share.
SHARED = ("downpour:", "easgd:", "hogwild:")
STEPS, PAUSE, DEADLINE = 24, 40, 2  # milliseconds between steps; seconds
# The deadline of a run without a fault, on a machine that may be busy.
PATIENCE = 30
# A job that ends by itself has ended by then: a launcher whose cable is cut needs longest.
BOUND = 40
KINDS = {
    "kill": "`kill -9` of a process other than 0",
    "kill-0": "`kill -9` of process 0, which writes the checkpoints",
    "save": "`kill -9` inside the write of a checkpoint",
    "stop": "SIGSTOP of a process",
    "cut": "the cable between two hosts is cut",
    "two": "two of the faults above at once",
    "term": "SIGTERM to a process",
    "term-mpirun": "SIGTERM to `mpirun`",
    "full": "the disk of the run's folder is full",
    "damage": "`kill -9`, and the newest checkpoint is damaged",
}
# With --survive.
KILLS = {
    "kill": "of a process other than 0",
    "kill-0": "of process 0, which writes the checkpoints",
    "save": "of process 0 inside the write of a checkpoint",
    "start": "of a process while the training begins",
    "again": "of a process, and of another one after the others have gone on",
    "both": "of two processes at once",
}
SIGNALS = {"kill": signal.SIGKILL, "kill-0": signal.SIGKILL, "damage": signal.SIGKILL, "stop": signal.SIGSTOP, "term": signal.SIGTERM}


@dataclasses.dataclass
class Fault:
    """What happens to a run. `parts` are kinds, each with a process, or -1; `restarts` are the P of runs that are started afterwards;
    `again` are the seconds between the moment when the others have gone on and a second kill."""

    kind: str
    parts: list
    processes: int
    hosts: int
    policy: str
    step: int
    delay: float
    restarts: list
    again: float = 0

    @property
    def replicas(self):
        return 4 if 4 % self.processes == 0 else self.processes

    def host_of(self, process):
        return process // -(-self.processes // self.hosts)

    def __str__(self):
        parts = " and ".join(part if process < 0 else f"{part} {process}" for part, process in self.parts)
        return (
            f"{self.kind + ': ' if self.kind in KILLS else ''}{parts or 'no fault'}: P = {self.processes}, {self.policy}, {self.hosts} host{'s' * (self.hosts > 1)}, "
            f"step {self.step} + {self.delay * 1000:.0f} ms, then P = {', '.join(map(str, self.restarts))}"
        )


def drawn(source, kind):
    """A fault of a kind, at a random time."""
    alone = kind in ("save", "term", "term-mpirun", "full", "damage")
    hosts = 2 if kind == "cut" else 1 if RULE in SHARED else source.choice([1, 2])
    # Somebody is to be left.
    processes = 4 if kind == "two" else source.choice([1, 2, 4]) if alone and hosts == 1 else source.choice([2, 4])
    policy = "shared" if RULE in SHARED else source.choice(["messages", "sums"] if hosts == 2 else ["shared", "messages", "sums"])
    parts = {
        "kill": lambda: [("kill", source.randrange(1, processes))],
        "kill-0": lambda: [("kill-0", 0)],
        "save": lambda: [("save", 0)],
        "stop": lambda: [("stop", source.randrange(processes))],
        "cut": lambda: [("cut", -1)],
        "two": lambda: two(source, processes, hosts),
        "term": lambda: [("term", source.randrange(processes))],
        "term-mpirun": lambda: [("term-mpirun", -1)],
        "full": lambda: [("full", -1)],
        "damage": lambda: [("damage", source.randrange(processes))],
    }[kind]()
    # A damaged checkpoint needs one before it.
    step = source.randrange(7, 18) if kind == "damage" else source.randrange(2, 15 if kind == "save" else 18)
    # The order of a sum's additions, and so its last bits, depend on P.
    restarts = [processes if policy == "sums" else source.choice([1, 2, 4])]
    return Fault(kind, parts, processes, hosts, policy, step, source.random() * PAUSE / 1000, restarts)


def named(source, kinds=(None, ("cut", -1), ("stop", 3), ("kill", 1)), restarts=(1, 2, 4)):
    """Runs of 2 + 2 processes on two hosts, without a fault or with one."""
    for part in kinds:
        delay = source.random() * PAUSE / 1000
        parts = [part] if part else []
        yield Fault(parts[0][0] if parts else "none", parts, 4, 2, "messages", source.randrange(4, 18), delay, list(restarts))


def two(source, processes, hosts):
    first, second = source.sample(range(processes), 2)
    parts = [source.choice([("kill", first), ("stop", first)] + [("cut", -1)] * (hosts == 2))]
    return parts + [(source.choice(["kill", "stop"]), second)]


def drawn_kill(source, kind):
    """One of KILLS, at a random time."""
    processes = source.choice([3, 4] if kind == "both" else [2, 3, 4])
    hosts = source.choice([1, 2])
    any_two = source.sample(range(processes), 2)
    killed = {"kill": [source.randrange(1, processes)], "kill-0": [0], "save": [0], "start": any_two[:1]}.get(kind, any_two)
    policy = source.choice(["messages"] if hosts == 2 else ["shared", "messages"])
    # The time of a save is the number of the checkpoint, that of a start is from the environment's on.
    step = {"save": source.randrange(1, 9), "start": 0, "again": source.randrange(1, 15)}.get(kind, source.randrange(1, STEPS))
    delay = source.random() * (0.5 if kind == "start" else PAUSE / 1000)
    fault = Fault(kind, [("kill", each) for each in killed], processes, hosts, policy, step, delay, [], again=source.random() / 3)
    fault.restarts = [source.choice([each for each in (1, 2, 3, 4) if fault.replicas % each == 0])]
    return fault


def may_go_on(fault, before, killed):
    """Whether docs/how-to/processes.md promises that the others go on when these are killed at once."""
    left = before - killed
    majority = 2 * len(left) > len(before) or (2 * len(left) == len(before) and min(before) in left)
    return majority and all(any(fault.host_of(other) == fault.host_of(each) for other in left) for each in killed)


def ends_of(fault, killed):
    """The ends that are right, True for going on: two kills may be noticed as one loss, or as two."""
    everyone, orders = set(range(fault.processes)), [[{each} for each in killed]]
    if fault.kind == "both":
        orders += [[set(killed)], [{each} for each in reversed(killed)]]
    ends = set()
    for losses in orders:
        left, goes_on = set(everyone), True
        for lost in losses:
            goes_on = goes_on and may_go_on(fault, left, lost)
            left -= lost
        ends.add(goes_on)
    return ends


class Launcher:
    """An mpirun: that of the system, or one of version 5 in a folder, without or with fault tolerance."""

    def __init__(self, folder=None, survives=False, deadline=DEADLINE):
        self.folder = folder
        self.survives = survives
        self.name = "4.1" if not folder else "5.0 with fault tolerance" if survives else "5.0"
        self.deadline = deadline

    def command(self, processes, hosts, program, options=()):
        parameters = {"plm_ssh_agent" if self.folder else "plm_rsh_agent": os.environ["HOSTS_AGENT"]}
        # As docs/how-to/processes.md says: the time that processes of the other host have to write their files after one was
        # killed, and what ends a launcher that has lost the other host.
        if hosts > 1:
            parameters["odls_base_sigkill_timeout"] = str(self.deadline + 1)
        if not self.folder:
            parameters |= {"oob_tcp_keepalive_time": "1", "oob_tcp_keepalive_intvl": "1", "oob_tcp_keepalive_probes": "3"}
        kind = "--prtemca" if self.folder else "--mca"
        where = ",".join(f"{host}:{-(-processes // hosts)}" for host in ["nodea", "nodeb"][:hosts])
        return [
            str(pathlib.Path(self.folder) / "bin" / "mpirun") if self.folder else "mpirun",
            *(word for name, value in parameters.items() for word in (kind, name, value)),
            *(["--with-ft", "ulfm", "-x", "FAULT_SURVIVED=1"] if self.survives else []),
            *options,
            *("--host", where, "--bind-to", "none", "-n", str(processes), *program),
        ]


class Job:
    """A running job, whose first host is nodea."""

    def __init__(self, launcher, program, folder, processes, hosts, policy, deadline=PATIENCE, saves=0, replicas=4, options=(), rule=None):
        self.folder = folder
        self.ids = folder.parent / (folder.name + ".ids")
        shutil.rmtree(self.ids, ignore_errors=True)
        self.ids.mkdir()
        for file in folder.glob("*.fault"):
            file.unlink()
        # The files that processes of a host have in common are removed with the folder.
        temporary = FOLDER / "tmp"
        temporary.mkdir(exist_ok=True)
        environment = dict(os.environ, TMPDIR=str(temporary), OMP_NUM_THREADS="1")
        for name in ("OMPI", "PRTE"):
            environment[name + "_ALLOW_RUN_AS_ROOT"] = environment[name + "_ALLOW_RUN_AS_ROOT_CONFIRM"] = "1"
        environment["OMPI_MCA_btl_vader_single_copy_mechanism"] = environment["OMPI_MCA_btl_sm_single_copy_mechanism"] = "none"
        for part in ("btl_vader", "btl_sm", "osc_sm"):
            environment[f"OMPI_MCA_{part}_backing_directory"] = str(temporary)
        arguments = [program, str(folder), (RULE if rule is None else rule) + policy, str(STEPS), str(PAUSE), str(deadline), str(replicas)]
        if saves:
            arguments = ["env", f"FAULT_IN_SAVE={saves}", *arguments]
        self.log = pathlib.Path(f"{folder}.output")
        with self.log.open("w") as log:
            self.launcher = subprocess.Popen(
                [os.environ["HOSTS_AGENT"], "nodea", "exec " + shlex.join(launcher.command(processes, hosts, arguments, options))],
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
            )

    def id_of(self, process):
        """Of a process of the job, in the system; 0 if it is not known yet."""
        try:
            return int((self.ids / f"{process}.pid").read_text() or 0)
        except FileNotFoundError:
            return 0

    def output(self):
        return self.log.read_text(errors="replace")

    def steps(self):
        """The number of steps that the run's log has."""
        try:
            # The last line may be cut off.
            found = re.findall(r"step (\d+), loss = .*\)\n", (self.folder / "train.log").read_text())
        except FileNotFoundError:
            return 0
        return int(found[-1]) + 1 if found else 0

    def finish(self, seconds):
        """The launcher's exit status; None if it has not ended by then."""
        try:
            return self.launcher.wait(seconds)
        except subprocess.TimeoutExpired:
            return None


def waited(condition, seconds):
    """Whether a condition comes true before the time is over."""
    until = time.time() + seconds
    while not condition():
        if time.time() > until:
            return False
        time.sleep(0.004)
    return True


def lives(process):
    """Whether a process exists, and has not ended."""
    try:
        state = pathlib.Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state not in "ZX"


def in_namespaces():
    """The processes in both namespaces, by number."""
    found = {}
    for name in os.environ["HOSTS_NAMES"].split():
        listed = subprocess.run(["ip", "netns", "pids", name], capture_output=True, text=True, check=True)
        for each in listed.stdout.split():
            try:
                found[int(each)] = pathlib.Path(f"/proc/{each}/comm").read_text().strip()
            except (FileNotFoundError, ProcessLookupError):
                pass
    return found


def clear():
    """Ends what a job has left behind. Returns the names."""
    left = {process: name for process, name in in_namespaces().items() if lives(process)}
    for process in left:
        try:
            os.kill(process, signal.SIGKILL)
        except ProcessLookupError:
            pass
    waited(lambda: not any(lives(process) for process in left), 5)
    return sorted(left.values())


def link(state):
    subprocess.run([*os.environ["HOSTS_LINK"].split(), state], check=True)


def mend():
    """Joins the hosts again, and waits until one reaches the other: nobody listens there, so that it refuses."""
    link("up")
    reach = ["bash", "-c", "exec 3<>/dev/tcp/10.77.0.1/9"]
    command = ["ip", "netns", "exec", os.environ["HOSTS_NAMES"].split()[1], *reach]
    waited(lambda: b"refused" in subprocess.run(command, capture_output=True, check=False).stderr, 10)


def checkpoints(folder):
    """The steps of the checkpoints, the newest last."""
    return sorted(int(file.stem.split("-")[1]) for file in folder.glob("model-*.safetensors"))


def fill(path):
    """Writes until the disk is full."""
    handle = os.open(path, os.O_WRONLY | os.O_CREAT)
    for size in (1 << 16, 1 << 12, 1):
        try:
            while True:
                os.write(handle, b"\0" * size)
        except OSError:
            pass
    os.close(handle)


def damage(path, number):
    """Cuts a file off, or changes a byte, as `number` says."""
    data = bytearray(path.read_bytes())
    place = int(number * 1e9) % len(data)
    if place % 2:
        data[place] ^= 1 << place % 7
    else:
        del data[place:]
    path.write_bytes(data)


class References:
    """The checkpoints of runs without faults."""

    def __init__(self, options, launcher):
        self.options, self.launcher, self.made = options, launcher, {}

    def __call__(self, policy, processes, hosts, replicas):
        # All runs that average rows have the bits of one process.
        key = (*((policy, processes, hosts) if policy == "sums" else ("shared", 1, 1)), replicas)
        if key not in self.made:
            folder = FOLDER / f"reference-{self.launcher.name}-{'-'.join(map(str, key))}"
            folder.mkdir()
            # Networks in parts have the bits of whole ones.
            rule = "" if RULE == "pipeline:" else RULE
            job = Job(self.launcher, self.options.program, folder, key[1], key[2], key[0], replicas=replicas, rule=rule)
            if job.finish(60) != 0:
                sys.exit(f"error: a run without a fault has failed: {job.output()}")
            self.made[key] = folder / f"model-{STEPS}.safetensors"
        return self.made[key]


class Trial:
    """One fault, and what is wrong with what came of it."""

    def __init__(self, options, launcher, references, number, fault):
        self.options, self.launcher, self.references, self.fault = options, launcher, references, fault
        self.folder = FOLDER / f"run{number}"
        # Seconds after the fault: of each file, of the end of each process that lived, of the launcher's end.
        self.files, self.exits, self.launcher_end = [], [], None
        # Until the others have gone on, and whether they did.
        self.gone_on, self.survived = [], False
        # Starts of MPI that have reached the deadline.
        self.slow_starts = 0
        self.problems, self.left, self.exact = [], [], 0
        self.hangs = self.lost = False

    def require(self, condition, problem):
        if not condition:
            self.problems.append(problem)
        return condition

    def run(self):
        self.folder.mkdir()
        # In memory: a disk that is busy with other work delays each checkpoint.
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m", "cupola", str(self.folder)], check=True)
        try:
            if self.fault.kind == "none":
                self.run_whole()
                return self
            if self.fault.kind in KILLS and self.launcher.survives:
                self.survive()
                if self.survived:
                    return self
            else:
                self.fail()
            mend()
            for processes in self.fault.restarts if not self.problems else []:
                self.go_on(processes)
        finally:
            mend()
            clear()
            subprocess.run(["umount", "-l", str(self.folder)], check=True)
        return self

    def survive(self):
        """The processes that are left go on, and end with the bits of a run without a fault; or they end, where they must."""
        fault, launcher = self.fault, self.launcher
        saves = fault.step if fault.kind == "save" else 0
        killed, living = [], {}

        def kill(process):
            try:
                os.kill(living[process], signal.SIGKILL)
            except ProcessLookupError:
                return
            killed.append(process)
            del living[process]

        def went_on():
            return job.output().count(" processes go on from step ") + job.output().count(" process goes on from step ")

        def wait_until_they_go_on(before):
            """Whether they have, `before` times already; false once the launcher has ended."""
            return waited(lambda: went_on() > before or job.launcher.poll() is not None, bound) and went_on() > before

        first = fault.parts[0][1]
        started = range(fault.processes) if fault.kind != "start" else [first]
        bound = launcher.deadline + BOUND

        def begun():
            return all(map(job.id_of, started)) and job.steps() >= (0 if saves else fault.step) or job.launcher.poll() is not None

        # On a machine that is busy with more processes than it has cores, the start of MPI between hosts can take a minute: each of
        # its hundreds of messages waits until a process has a core.
        for _ in range(3):
            job = self.job_of_fault(saves)
            waited(begun, bound)
            if job.launcher.poll() != 75 or " s for others, in the start of MPI" not in job.output():
                break
            self.slow_starts += 1
            clear()
        if not self.require(job.launcher.poll() is None and all(map(job.id_of, started)), f"the run has ended early: {job.output()}"):
            return
        if saves:
            living = {process: job.id_of(process) for process in started}
            self.require(waited(lambda: not lives(living[0]), bound), "process 0 has written its checkpoint")
            killed.append(0)
            del living[0]
        else:
            time.sleep(fault.delay)
            living = {process: job.id_of(process) for process in range(fault.processes) if job.id_of(process)}
            kill(first)
        began = time.time()
        if fault.kind == "both":
            kill(fault.parts[1][1])
        if wait_until_they_go_on(0):
            self.gone_on.append(time.time() - began)
            if fault.kind == "again":
                time.sleep(fault.again)
                kill(fault.parts[1][1])
                again = time.time()
                if len(killed) == 2 and wait_until_they_go_on(1):
                    self.gone_on.append(time.time() - again)
        status = job.finish(bound)
        self.launcher_end = time.time() - began
        self.hangs = status is None
        said = job.output()
        living = {process: job.id_of(process) for process in range(fault.processes) if process not in killed}
        # mpirun may end before the last of them, which is gone within a second of its message.
        gone = waited(lambda: not any(map(lives, living.values())), 1)
        self.require(gone, f"mpirun has ended, and some of the processes {living} have not")
        self.left = clear()
        # Where nobody is left, the status is 0 too.
        may_end_by, self.survived = ends_of(fault, killed), status == 0 and bool(living)
        as_promised = status in (0, 75) and self.survived in may_end_by if living else status is not None
        if not self.require(as_promised, f"mpirun has the status {status}: {said}"):
            return
        self.require_checkpoints(job)
        if self.survived:
            self.require(self.gone_on, f"the others have not said that they go on: {said}")
            self.require_bits(self.folder, fault.processes, fault.hosts)
            return
        # All of them say why, each in its file too; one that is late has noticed the end of another one.
        why = rf"cannot go on: (of \d processes [\d, ]+ are not there any more: .*|it is not known that [\d, ]+ of \d were killed: .*)"
        found = []
        for process in living:
            file = self.folder / f"process-{process}.fault"
            if not self.require(file.exists(), f"process {process} has no file: {said}"):
                continue
            self.files.append(file.stat().st_mtime - began)
            text = file.read_text()
            found.append(re.fullmatch(rf"process {process} {why}, in the agreement of the processes that are left\n", text))
            self.require(found[-1] or "which has ended by itself" in text, f"process {process} says: {text}")
            self.require(text in said, f"not in the output of mpirun: {text}")
        self.require(any(found) or not living, f"no process says why it cannot go on: {said}")

    def job_of_fault(self, saves=0):
        fault, program, deadline = self.fault, self.options.program, self.launcher.deadline
        return Job(self.launcher, program, self.folder, fault.processes, fault.hosts, fault.policy, deadline, saves, fault.replicas)

    def fail(self):
        fault = self.fault
        saves = fault.step if fault.kind == "save" else 0
        job = self.job_of_fault(saves)
        waited(lambda: job.steps() >= (1 if saves else fault.step) or job.launcher.poll() is not None, 60)
        if not self.require(job.launcher.poll() is None and job.steps() > 0, f"the run has ended early: {job.output()}"):
            return
        ids = [job.id_of(process) for process in range(fault.processes)]
        if not saves:
            time.sleep(fault.delay)
        began = time.time()
        lost = {process for part, process in fault.parts if part in SIGNALS and part != "term"}
        for part, process in fault.parts:
            if part in SIGNALS:
                os.kill(ids[process], SIGNALS[part])
            elif part == "cut":
                link("down")
            elif part == "term-mpirun":
                job.launcher.send_signal(signal.SIGTERM)
            elif part == "full":
                fill(self.folder / "filler")
        if fault.kind in ("save", "full"):
            # The process ends when it writes a checkpoint.
            self.require(waited(lambda: not lives(ids[0]), 20), "process 0 has written its checkpoint")
            began = time.time()
            lost = {0}
        alive = [process for process in range(fault.processes) if process not in lost]
        for process in alive:
            # What ends processes after a signal to the launcher is the launcher.
            bound = BOUND if fault.kind == "term-mpirun" else self.launcher.deadline + 1 + self.options.margin
            ended = waited(lambda process=process: not lives(ids[process]), began + bound - time.time())
            self.hangs = self.hangs or not ended
            if self.require(ended, f"process {process} has not left after {bound} s"):
                self.exits.append(time.time() - began)
        if self.launcher.folder and fault.kind == "cut":
            # mpirun of 5.0 does not notice the loss of the other host: docs/how-to/processes.md.
            job.launcher.kill()
        status = job.finish(BOUND)
        self.launcher_end = time.time() - began
        self.hangs = self.hangs or status is None
        self.require(status is not None, f"mpirun has not ended after {BOUND} s")
        self.require(status != 0, "mpirun has ended with the status 0")
        self.left = clear()
        if fault.kind == "full":
            self.require("No space left on device" in job.output(), f"no message says that the disk is full: {job.output()}")
        else:
            self.require_files(job, alive, lost, began)
        self.require_checkpoints(job)

    def require_files(self, job, alive, lost, began):
        fault = self.fault
        files = {int(file.stem.split("-")[1]): file for file in self.folder.glob("process-*.fault")}
        if fault.kind in ("term", "term-mpirun"):
            self.require(not files, f"a run that was stopped by a signal has files of {sorted(files)}")
            return
        # Without fault tolerance the library of 5.0 itself ends processes of the other host, and mpirun then the rest, at once.
        ended_by_library = self.launcher.folder and "An error occurred in Socket closed" in job.output()
        is_cut, half, all_named = any(part == "cut" for part, _ in fault.parts), fault.processes // 2, set()
        for process in alive:
            if process not in files and ended_by_library:
                continue
            if not self.require(process in files, f"process {process} has no file: {job.output()}"):
                continue
            said = files[process].read_text()
            seconds = files[process].stat().st_mtime - began
            self.files.append(seconds)
            self.require(seconds <= self.launcher.deadline + 1 + self.options.margin, f"the file of process {process} is of {seconds:.2f} s")
            found = re.fullmatch(rf"process {process} has .*, in .* of step \d+; missing: process ([\d, ]+)\n", said)
            if not self.require(found, f"process {process} says: {said}"):
                continue
            named = {int(each) for each in found[1].split(", ")}
            other_side = {each for each in range(fault.processes) if (each < half) != (process < half)}
            failed = lost | (other_side if is_cut else set())
            self.exact += named == failed
            all_named |= named
        # A process may have waited for one that waits itself. Of two that fail, one may end all before the other is missed.
        found = not alive or not files or (all_named & lost if len(fault.parts) > 1 else lost <= all_named)
        self.require(found, f"{lost} have failed, and the files name {all_named}")
        stopped = {process for part, process in fault.parts if part == "stop"}
        self.require(not set(files) & (lost - stopped), f"a process that was killed has a file: {sorted(files)}")

    def require_checkpoints(self, job):
        steps, found = job.steps(), checkpoints(self.folder)
        newest = found[-1] if found else 0
        # A step is in the log before its checkpoint is written. A run that a signal ends has one of its last step.
        expected = steps if self.fault.kind in ("term", "term-mpirun") else (steps - 1) // 3 * 3
        self.lost = not self.require(newest >= expected, f"the newest checkpoint is of step {newest}, after {steps} steps")

    def run_whole(self):
        """A run without a fault."""
        fault = self.fault
        began = time.time()
        job = Job(self.launcher, self.options.program, self.folder, fault.processes, fault.hosts, fault.policy, replicas=fault.replicas)
        status = job.finish(60)
        self.launcher_end = time.time() - began
        self.hangs = status is None
        if self.require(status == 0, f"the run has the status {status}: {job.output()}"):
            self.require_bits(self.folder, fault.processes, fault.hosts)

    def require_bits(self, folder, processes, hosts):
        if RULE == "hogwild:":
            self.require((folder / f"model-{STEPS}.safetensors").exists(), "there is no checkpoint of the end")
            return
        reference = self.references(self.fault.policy, processes, hosts, self.fault.replicas)
        same = filecmp.cmp(folder / f"model-{STEPS}.safetensors", reference, shallow=False)
        self.require(same, f"{processes} processes have other bits than a run without a fault")

    def go_on(self, processes):
        """The rest of the run, without a fault."""
        fault = self.fault
        folder = self.folder.with_name(f"{self.folder.name}-{processes}")
        shutil.copytree(self.folder, folder, ignore=shutil.ignore_patterns("filler"))
        found = [0, *checkpoints(folder)]
        expected = found[-1]
        if fault.kind == "damage":
            damage(folder / f"model-{expected}.safetensors", fault.delay)
            expected = found[-2]
        hosts = fault.hosts if fault.policy == "sums" else 1
        job = Job(self.launcher, self.options.program, folder, processes, hosts, fault.policy, replicas=fault.replicas)
        status = job.finish(60)
        said = job.output()
        self.hangs = self.hangs or status is None
        if not self.require(status == 0, f"the run that goes on has the status {status}: {said}"):
            return
        resumed = re.search(r"resumed from .*model-(\d+)\.safetensors", said)
        at = int(resumed[1]) if resumed else 0
        if not self.require(at == expected, f"the run has not gone on from step {expected}, but from {at}: {said}"):
            self.lost = True
        # A file that was not finished is removed with a warning.
        warnings = [line for line in said.splitlines() if line.startswith("warning: ") and " was removed: " not in line]
        damaged = [f"model-{found[-1]}.safetensors"] if fault.kind == "damage" else []
        as_expected = len(warnings) == len(damaged) and all(name in line for name, line in zip(damaged, warnings))
        self.require(as_expected, f"not the expected warnings: {said}")
        self.require_bits(folder, processes, hosts)


def tried(options, launcher, references, fault, number):
    trial = Trial(options, launcher, references, number, fault).run()
    files = f"files after {', '.join(f'{each:.2f}' for each in sorted(trial.files))} s" if trial.files else "no file"
    ends = f"; processes left by {max(trial.exits):.2f} s" if trial.exits else ""
    end = "" if trial.launcher_end is None else f"; mpirun by {trial.launcher_end:.2f} s"
    left = f"; left behind: {' '.join(trial.left)}" if trial.left else ""
    gone_on = f"; gone on after {', '.join(f'{each:.2f}' for each in trial.gone_on)} s" if trial.gone_on else ""
    print(f"{number}: Open MPI {launcher.name}: {fault}: {files}{ends}{gone_on}{end}{left}", flush=True)
    for problem in trial.problems:
        print(f"error: {fault}: {problem}", flush=True)
    return trial


def port_in_use(options):
    """The job of two hosts whose only port for MPI's messages is in use at one of them. Returns what is wrong."""
    code = "import socket, time; s = socket.socket(); s.bind(('', 41000)); s.listen(); print(flush=True); time.sleep(60)"
    namespace = os.environ["HOSTS_NAMES"].split()[0]
    command = ["ip", "netns", "exec", namespace, sys.executable, "-c", code]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as listener:
        listener.stdout.readline()
        folder = FOLDER / "port"
        folder.mkdir()
        ports = ["--mca", "btl_tcp_port_min_v4", "41000", "--mca", "btl_tcp_port_range_v4", "1"]
        job = Job(Launcher(), options.program, folder, 2, 2, "messages", options=ports)
        status = job.finish(BOUND)
        listener.terminate()
    said = job.output()
    clear()
    print(f"port in use: mpirun has ended with the status {status}", flush=True)
    if status in (None, 0):
        return [f"mpirun has ended with the status {status}, although its port is in use: {said}"]
    return [] if "no port available in the range [41000..41001]" in said else [f"no message says that a port is in use: {said}"]


def work(options):
    """Tries each options.jobs-th fault, beside the two hosts of this process."""
    # On a busy machine MPI needs seconds to start, which these count too.
    old = Launcher(deadline=6 if options.named else DEADLINE)
    references = {old: References(options, old)}
    source = random.Random(options.seed)
    if options.named:
        faults = [(fault, old) for fault in named(source)]
        if options.openmpi5:
            new, tolerant = (Launcher(options.openmpi5, survives, deadline=20) for survives in (False, True))
            references[new] = references[tolerant] = References(options, new)
            faults += [(fault, new) for fault in named(source, restarts=[2])]
            parts = [("kill", 1), ("kill", 0), ("kill", 3), ("cut", -1), ("stop", 3)]
            faults += [(fault, tolerant) for fault in named(source, parts, restarts=[2])]
    elif options.survive:
        # None of these kills is noticed by a deadline, which counts the start of MPI too.
        tolerant = Launcher(options.openmpi5, survives=True, deadline=2 * PATIENCE)
        references[tolerant] = References(options, Launcher(options.openmpi5))
        kinds = [options.kind] if options.kind else list(KILLS)
        faults = [(drawn_kill(source, kinds[number % len(kinds)]), tolerant) for number in range(options.count)]
    else:
        kinds = [options.kind] if options.kind else [kind for kind in KINDS if kind != "cut" or RULE not in SHARED]
        faults = [(drawn(source, kinds[number % len(kinds)]), old) for number in range(options.count)]
    results = []
    if options.named and options.part == 0:
        problems = port_in_use(options)
        print("".join(f"error: {problem}\n" for problem in problems), end="", flush=True)
        results.append({"number": -1, "kind": "port", "problems": problems})
    for number, (fault, launcher) in list(enumerate(faults))[options.part :: options.jobs]:
        trial = tried(options, launcher, references[launcher], fault, number)
        results.append(
            {
                "number": number,
                "kind": fault.kind,
                "fault": str(fault),
                "launcher": launcher.name,
                "files": [round(each, 3) for each in sorted(trial.files)],
                "files_that_name_exactly_the_failed": trial.exact,
                "processes_left_by": round(max(trial.exits), 3) if trial.exits else None,
                "gone_on_after": [round(each, 3) for each in trial.gone_on],
                "survived": trial.survived,
                "slow_starts": trial.slow_starts,
                "launcher_ended_by": None if trial.launcher_end is None else round(trial.launcher_end, 3),
                "left_behind": trial.left,
                "hangs": trial.hangs,
                "lost_checkpoint": trial.lost,
                "problems": trial.problems,
            }
        )
        pathlib.Path(options.results).write_text(json.dumps(results))


def ended_by(results):
    ends = [each["launcher_ended_by"] for each in results if each["launcher_ended_by"] is not None]
    return f"{max(ends):.1f}" if ends else ""


def those(name):
    """How many of some results have it."""
    return lambda results: sum(bool(each[name]) for each in results)


def seconds(of, name):
    """The median, or the largest, of the times that some results have."""
    def column(results):
        times = [time for each in results for time in each[name]]
        return f"{of(times):.2f}" if times else ""

    return column


def table(first, rows, columns):
    """A row for each title, with what a function says of its results in each column."""
    return machine.table([first, *columns], [[title, *(column(results) for column in columns.values())] for title, results in rows])


def by_kind(kinds, results):
    return [(title, [each for each in results if each["kind"] == kind]) for kind, title in kinds.items()]


COLUMNS = {
    "count": len, "hangs": those("hangs"), "lost checkpoints": those("lost_checkpoint"),
    "files": lambda results: sum(len(each["files"]) for each in results),
    "median s to a file": seconds(statistics.median, "files"), "largest": seconds(max, "files"),
    "`mpirun` ended by, s": ended_by, "failures": those("problems"),
}  # fmt: skip


def section_of_faults(measured):
    results = measured["faults"]
    files = sum(len(each["files"]) for each in results)
    exact = sum(each["files_that_name_exactly_the_failed"] for each in results)
    return [
        f"Written by `tests/mpi/faults {measured['command']}`.",
        "",
        f"A training of four replicas in 1, 2 or 4 processes of Open MPI 4.1, on one host or on two (network namespaces of one "
        f"machine), with a checkpoint after every third of its {STEPS} steps and a deadline of {DEADLINE} s, has a fault at a random "
        "moment. Each process that lives and is not stopped must write its file `process-<number>.fault` and leave within the "
        "deadline and 1 s; the newest checkpoint must be that of the log; and the run that goes on, with another number of "
        "processes, must end with the bits of a run without a fault. After a signal, and where the disk is full, there are no files.",
        "",
        *table("fault", by_kind(KINDS, results), COLUMNS),
        "",
        f"{exact} of {files} files name exactly the processes that failed. The others name some of them, or a process that had itself "
        "waited for one of them: of two faults the first ends the job, and a part that was sent last may still be on its way when its "
        "sender is stopped. Where one process fails, a job whose files together do not name it counts as a failure.",
        "",
        "`mpirun` is started with the options of [From one process to many](../how-to/processes.md). After a cut it leaves its "
        "daemon `orted` on the other host behind.",
        "",
        *machine.lines(measured["machine"]),
        "",
    ]


def section_of_survivors(measured):
    def right(survived):
        return lambda of_kind: sum(each["survived"] == survived for each in of_kind if not each["problems"])

    columns = {
        "count": len, "went on": right(True), "ended by the rules": right(False), "hangs": those("hangs"),
        "lost checkpoints": those("lost_checkpoint"), "median s until they go on": seconds(statistics.median, "gone_on_after"),
        "largest": seconds(max, "gone_on_after"), "`mpirun` ended by, s": ended_by, "failures": those("problems"),
    }  # fmt: skip
    slow = sum(each["slow_starts"] for each in measured["faults"])
    return [
        "## Processes that survive",
        "",
        f"Written by `tests/mpi/faults {measured['command']}`.",
        "",
        f"The same training in 2, 3 or 4 processes, of three replicas where four cannot be divided, by `MpiConcatMean` and under `mpirun --with-ft "
        "ulfm` of Open MPI 5.0: at a random moment a random process is killed by `kill -9`. By the rules of [From one process to "
        "many](../how-to/processes.md#going-on-without-a-process-that-was-killed) the others go on, and the run must end by itself with "
        "the bits of a run without a fault; or they are too few, or none is left on the host of the killed one: then each must say so, in "
        "its file too, and end with the status 75, the newest checkpoint must be that of the log, and the run that is started again must "
        "end with the same bits.",
        "",
        *table("`kill -9`", by_kind(KILLS, measured["faults"]), columns),
        "",
        "A job whose start of MPI took longer than the deadline, which happens between hosts that share few cores, ended by itself with that "
        f"message, before it was killed, and was started again: {slow}.",
        "",
        *machine.lines(measured["machine"]),
        "",
    ]


def section_of_rules(measured):
    lines = [
        "## Replicas with parameters of their own",
        "",
        "The faults of the first table, all kinds of it in turn, under each rule by which replicas agree on a centre. Where the centre is in memory "
        "that processes share, they are on one host, so that no cable is cut; and the run that goes on has the bits of one without a fault, but for "
        "Hogwild, no two runs of which have the same.",
        "",
        *machine.table(["rule", *COLUMNS], [[RULES[rule], *measured[rule]["row"]] for rule in RULES if rule in measured]),
        "",
    ]
    by_machine = {}
    for each in measured.values():
        by_machine.setdefault("\n".join(machine.lines(each["machine"])), []).append(f"`tests/mpi/faults {each['command']}`")
    for computer, commands in by_machine.items():
        lines += [f"Written by {', '.join(sorted(commands))}.", "", computer, ""]
    return lines


def page(measured):
    """`measured` is what faults.json has: "faults", "survivors" and "rules", or some of them."""
    lines = ["# Faults of processes", ""]
    for name, section in (("faults", section_of_faults), ("survivors", section_of_survivors), ("rules", section_of_rules)):
        if name in measured:
            lines += section(measured[name])
    return lines


def report(options, computer, results):
    """Prints the table of these results; with --save, writes it to the page beside the other one."""
    kind = f"--kind {options.kind} " if options.kind else ""
    kind += f"--rule {options.rule} " if options.rule else ""
    command = f"{'--survive ' if options.survive else ''}{kind}--seed {options.seed} --count {options.count} --jobs {options.jobs} --save"
    these = {"command": command, "machine": computer}
    path = machine.MEASUREMENTS / "faults.json"
    measured = json.loads(path.read_text()) if options.save and path.exists() else {}
    if options.rule in RULES:
        row = [column(results) for column in COLUMNS.values()]
        mine = {"rules": measured.get("rules", {}) | {options.rule: these | {"row": row}}}
    else:
        mine = {"survivors" if options.survive else "faults": these | {"faults": results}}
    print("\n".join(page(mine)))
    if options.save:
        measured |= mine
        path.write_text(json.dumps(measured, indent=1) + "\n")
        (machine.MEASUREMENTS / "faults.md").write_text("\n".join(page(measured)))


def main():
    parser = argparse.ArgumentParser(prog="tests/mpi/faults")
    parser.add_argument("program", help="mpi_faulty_run")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=12)
    parser.add_argument("--kind", choices=list(dict.fromkeys([*KINDS, *KILLS])), help="only faults of this kind")
    parser.add_argument(
        "--rule",
        choices=[*RULES, "pipeline"],
        help="replicas with parameters of their own agree on a centre by it; pipeline: the network of each process is in two parts",
    )
    parser.add_argument("--survive", action="store_true", help="kills, after which the others go on")
    parser.add_argument("--named", action="store_true", help="2 + 2 processes on two hosts: no fault, and a cut, a stop and kills")
    parser.add_argument("--openmpi5", help="the folder of Open MPI 5.0, for --named and --survive")
    parser.add_argument("--margin", type=float, default=5, help="seconds that a busy machine may add to the deadline and 1 s")
    parser.add_argument("--jobs", type=int, default=3, help="faults at the same time")
    parser.add_argument("--save", action="store_true", help="write docs/measurements/faults.md")
    parser.add_argument("--part", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--results", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.rule:
        global RULE
        RULE = options.rule + ":"
    if options.survive and (options.named or not options.openmpi5):
        parser.error("--survive needs --openmpi5, and is not for --named")
    if options.save and options.rule == "pipeline":
        parser.error("--save is not for --rule pipeline")
    if options.kind and not options.named and options.kind not in (KILLS if options.survive else KINDS):
        parser.error(f"--kind {options.kind} is {'not ' if options.survive else ''}for --survive")
    # So that what was begun is removed.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    if options.part is not None:
        work(options)
        return
    computer = machine.describe()
    with tempfile.TemporaryDirectory() as folder:
        paths = [pathlib.Path(folder) / str(part) for part in range(options.jobs)]
        command = [str(HERE / "hosts"), sys.executable, __file__, *sys.argv[1:]]
        workers = [
            subprocess.Popen([*command, "--jobs", str(options.jobs), "--part", str(part), "--results", str(path)])
            for part, path in enumerate(paths)
        ]
        try:
            statuses = [worker.wait() for worker in workers]
        finally:
            for worker in workers:
                worker.terminate()
                worker.wait()
        if any(statuses):
            sys.exit(77 if 77 in statuses else 1)
        results = sorted((each for path in paths for each in json.loads(path.read_text())), key=lambda each: each["number"])
    if not options.named:
        report(options, computer, results)
    failed = sum(bool(each["problems"]) for each in results)
    print(f"{len(results)} faults, {failed} not as promised")
    sys.exit(failed > 0)


if __name__ == "__main__":
    main()
