# SPDX-License-Identifier: Apache-2.0
"""Two processes that average by NcclAllReduce, on one GPU or more: they must learn what one process with both batches learns,
and when one of them is killed the other must end by itself, with an error that says who it was.

NCCL refuses two ranks on one GPU of one host. With a NCCL_HOSTID of its own each process passes for a host, and they talk by
sockets over the loopback interface: enough to see that the numbers are right, and nothing about speed.
"""

import json
import math
import os
import pathlib
import re
import signal
import subprocess
import tempfile
import time

from stages import Failed, Skipped

STEPS = 10
DIE_AT = 5
TOLERANCE = 1e-4
# The deadline of a step where a rank is killed, and what the end may cost beside it: the way out of a process with a GPU.
STEP_SECONDS = 15
EXIT_SECONDS = 10


class Process:
    """One of the training's processes, whose output goes to a file."""

    def __init__(self, program, folder, name, process, processes, id_file, more=()):
        self.result = folder / f"{name}-{process}.json"
        self.printed = folder / f"{name}-{process}.log"
        environment = dict(os.environ, NCCL_HOSTID=f"cupola-{process}", NCCL_NET="Socket", NCCL_SOCKET_IFNAME="lo",
                           NCCL_IB_DISABLE="1", NCCL_DEBUG="WARN")
        environment.pop("CUPOLA_NCCL_ID", None)
        words = [program, self.result, process, processes, id_file, STEPS, "--step-seconds", STEP_SECONDS, *more]
        with open(self.printed, "w") as file:
            self.process = subprocess.Popen([str(word) for word in words], stdout=file, stderr=subprocess.STDOUT,
                                            env=environment, start_new_session=True)

    def output(self):
        return self.printed.read_text(errors="replace")

    def wait(self, until):
        return self.process.wait(timeout=max(0.1, until - time.monotonic()))

    def end(self):
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()


def last_line(output):
    """The error's sentence, or the last line that was printed."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    sentences = [line.removeprefix("error: ") for line in lines if line.startswith("error: ")]
    return (sentences or lines or ["it printed nothing"])[-1][:600]


def difference(left, right):
    """norm(left - right) / norm(right)"""
    if len(left) != len(right) or not all(math.isfinite(value) for value in left + right):
        return math.inf
    return math.sqrt(sum((a - b) ** 2 for a, b in zip(left, right)) / sum(b * b for b in right))


def _finish(processes, until, found):
    """What all have written. If one fails, what each of them said is the reason: it is seldom the first that knows."""
    problems = []
    for process in processes:
        name = process.printed.stem
        try:
            status = process.wait(until)
        except subprocess.TimeoutExpired:
            problems.append(f"{name} had not ended when its time was over: {last_line(process.output())}")
            continue
        if status == 77:
            raise Skipped(last_line(process.output()).removeprefix("skipped: "))
        if status != 0:
            problems.append(f"{name} ended with status {status}: {last_line(process.output())}")
    if problems:
        raise Failed("; ".join(problems), found)
    return [json.loads(process.result.read_text()) for process in processes]


def _compare(program, folder, until, found):
    alone = Process(program, folder, "both-batches", 0, 1, folder / "unused")
    try:
        begin = time.monotonic()
        expected = _finish([alone], until, found)[0]
        found["one_process_s"] = round(time.monotonic() - begin, 1)
    finally:
        alone.end()
    id_file = folder / "id"
    begin = time.monotonic()
    ranks = [Process(program, folder, "two-ranks", process, 2, id_file) for process in (0, 1)]
    try:
        results = _finish(ranks, until, found)
    finally:
        for rank in ranks:
            rank.end()
    found["two_processes_s"] = round(time.monotonic() - begin, 1)
    if results[0]["parameters"] != results[1]["parameters"]:
        raise Failed(f"the two processes' parameters differ after {STEPS} steps", found)
    # Each reports the loss of its own samples, of which there are as many.
    losses = [(a + b) / 2 for a, b in zip(results[0]["losses"], results[1]["losses"])]
    found["losses_differ_by"] = difference(losses, expected["losses"])
    found["parameters_differ_by"] = difference(results[0]["parameters"], expected["parameters"])
    found["first_loss"], found["last_loss"] = losses[0], losses[-1]
    for what in ("losses", "parameters"):
        if not found[f"{what}_differ_by"] <= TOLERANCE:
            raise Failed(f"after {STEPS} steps the two processes' {what} differ from one process's by "
                         f"{found[f'{what}_differ_by']:.2g} of their norm, more than {TOLERANCE}", found)
    left = [path.name for path in (id_file, folder / "id.heartbeats") if path.exists()]
    if left:
        raise Failed(f"the start left {' and '.join(left)} behind", found)


def _kill(program, folder, until, found):
    id_file = folder / "id-of-the-killed"
    survivor = Process(program, folder, "survivor", 0, 2, id_file)
    killed = Process(program, folder, "killed", 1, 2, id_file, ("--die-at", DIE_AT))
    try:
        try:
            status = killed.wait(until)
        except subprocess.TimeoutExpired:
            raise Failed(f"the process that kills itself did not come to step {DIE_AT}", found) from None
        died = time.monotonic()
        if status != -signal.SIGKILL:
            raise Failed(f"the process that kills itself ended with status {status}: {last_line(killed.output())}", found)
        try:
            status = survivor.wait(min(until, died + STEP_SECONDS + EXIT_SECONDS))
        except subprocess.TimeoutExpired:
            raise Failed(f"{time.monotonic() - died:.0f} s after the other was killed, a process with a deadline of "
                         f"{STEP_SECONDS} s had not ended", found) from None
    finally:
        survivor.end()
        killed.end()
    found["ended_after_s"] = round(time.monotonic() - died, 1)
    found["error"] = last_line(survivor.output())
    if status != 3:
        raise Failed(f"the process whose peer was killed ended with status {status}: {found['error']}", found)
    for part in ("replica 0 (rank 0 of 2)", "the sum of the gradients", f"step {DIE_AT}",
                 "the heartbeat of rank 1 has stopped"):
        if not re.search(re.escape(part) + r"(?!\d)", found["error"]):
            raise Failed(f"the error of the process whose peer was killed does not say '{part}': {found['error']}", found)


def run_two_processes(program, out, log, seconds):
    """Both checks, within `seconds`; their files lie in a folder in `out` while they run, and what was printed is added to
    `log`. Returns what was found; raises Failed, or Skipped where there is no GPU."""
    until = time.monotonic() + seconds - 2
    found = {}
    with tempfile.TemporaryDirectory(dir=out) as name:
        folder = pathlib.Path(name)
        try:
            _compare(program, folder, until, found)
            _kill(program, folder, until, found)
        finally:
            with open(log, "a") as file:
                for printed in sorted(folder.glob("*.log")):
                    file.write(f"--- {printed.stem}\n{printed.read_text(errors='replace')}\n")
    return found
