# SPDX-License-Identifier: Apache-2.0
"""Checks two processes that average by NcclAllReduce, on one GPU or more: they must learn what one process with both batches
learns, and when one of them is killed the other must end by itself, with an error that names the killed one.

NCCL rejects two ranks on one GPU of one host. With different values of NCCL_HOSTID each process counts as a host, and they
communicate by sockets over the loopback interface: this checks the numbers and says nothing about speed. Processes of one host, which
communicate by peer-to-peer copies or shared memory, need a GPU each: with two GPUs they are checked too; with one, NCCL's error has
to end both processes with a message.
"""

import json
import math
import os
import pathlib
import re
import shutil
import signal
import subprocess
import tempfile
import time

import descendants
from stages import Failed, Skipped, append, end_process

STEPS = 10
DIE_AT = 5
TOLERANCE = 1e-4
# The deadline of a step in which a rank is killed, and the time that the end of a process with a GPU may take in addition.
STEP_SECONDS = 15
EXIT_SECONDS = 30


class Process:
    """One process of the training, whose output goes to a file. `gpus` lists the GPU of each process of one host; without it, each
    process counts as a host of its own, and all use the same GPU."""

    def __init__(self, program, folder, name, process, processes, id_file, gpus=None, more=()):
        self.result = folder / f"{name}-{process}.json"
        self.printed = folder / f"{name}-{process}.log"
        self.said_by_nccl = folder / f"{name}-{process}-nccl.log"
        environment = dict(os.environ, NCCL_SOCKET_IFNAME="lo", NCCL_IB_DISABLE="1", NCCL_DEBUG="INFO",
                           NCCL_DEBUG_FILE=str(self.said_by_nccl))
        for variable in ("CUPOLA_NCCL_ID", "NCCL_HOSTID", "NCCL_NET"):
            environment.pop(variable, None)
        if gpus is None:
            environment.update(NCCL_HOSTID=f"cupola-{process}", NCCL_NET="Socket")
        else:
            environment["CUDA_VISIBLE_DEVICES"] = gpus[process]
        words = [program, self.result, process, processes, id_file, STEPS, "--step-seconds", STEP_SECONDS, *more]
        self.mark = environment[descendants.VARIABLE] = descendants.new_mark()
        with open(self.printed, "w") as file:
            self.process = subprocess.Popen([str(word) for word in words], stdout=file, stderr=subprocess.STDOUT,
                                            env=environment, start_new_session=True)
        descendants.claim(self.process.pid, self.mark)

    def output(self):
        return self.printed.read_text(errors="replace")

    def transports(self):
        """The transport in NCCL's log: "P2P", "SHM" or "NET"."""
        said = self.said_by_nccl.read_text(errors="replace") if self.said_by_nccl.exists() else ""
        return sorted(set(re.findall(r"\bvia (P2P|SHM|NET)\b", said)))

    def wait(self, until):
        return self.process.wait(timeout=max(0.1, until - time.monotonic()))

    def end(self):
        end_process(self.process, self.mark)


def visible_gpus():
    """The GPUs that a process may use, by their names in CUDA_VISIBLE_DEVICES."""
    chosen = os.environ.get("CUDA_VISIBLE_DEVICES")
    if chosen is not None:
        return [name.strip() for name in chosen.split(",") if name.strip()]
    if shutil.which("nvidia-smi") is None:
        return []
    listed = subprocess.run(["nvidia-smi", "--query-gpu=index", "--format=csv,noheader"], capture_output=True, text=True, timeout=60)
    return listed.stdout.split() if listed.returncode == 0 else []


def last_line(output):
    """The message of the error, or the last line of the output."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    messages = [line.removeprefix("error: ") for line in lines if line.startswith("error: ")]
    return (messages or lines or ["it printed nothing"])[-1][:600]


def difference(left, right):
    """norm(left - right) / norm(right)"""
    if len(left) != len(right) or not all(math.isfinite(value) for value in left + right):
        return math.inf
    return math.sqrt(sum((a - b) ** 2 for a, b in zip(left, right)) / sum(b * b for b in right))


def _finish(processes, until, found):
    """The results of all processes. If one fails, the reason contains the messages of all, because the cause is often in another one."""
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


def _alone(program, folder, until, found):
    """The result of one process with both batches."""
    alone = Process(program, folder, "both-batches", 0, 1, folder / "unused")
    try:
        begin = time.monotonic()
        expected = _finish([alone], until, found)[0]
        found["one_process_s"] = round(time.monotonic() - begin, 1)
        return expected
    finally:
        alone.end()


def _compare(program, folder, until, found, expected, gpus=None):
    name = "two-ranks" if gpus is None else "two-ranks-of-one-host"
    id_file = folder / f"id-of-{name}"
    begin = time.monotonic()
    ranks = [Process(program, folder, name, process, 2, id_file, gpus) for process in (0, 1)]
    try:
        results = _finish(ranks, until, found)
    finally:
        for rank in ranks:
            rank.end()
    found["two_processes_s"] = round(time.monotonic() - begin, 1)
    found["transports"] = sorted({transport for rank in ranks for transport in rank.transports()})
    if gpus is not None and "NET" in found["transports"]:
        raise Failed(f"the ranks of one host are connected by {', '.join(found['transports'])}", found)
    if results[0]["parameters"] != results[1]["parameters"]:
        raise Failed(f"the two processes' parameters differ after {STEPS} steps", found)
    # Each process reports the loss of its own samples; both have the same number.
    losses = [(a + b) / 2 for a, b in zip(results[0]["losses"], results[1]["losses"])]
    found["losses_differ_by"] = difference(losses, expected["losses"])
    found["parameters_differ_by"] = difference(results[0]["parameters"], expected["parameters"])
    found["first_loss"], found["last_loss"] = losses[0], losses[-1]
    for what in ("losses", "parameters"):
        if not found[f"{what}_differ_by"] <= TOLERANCE:
            raise Failed(f"after {STEPS} steps the two processes' {what} differ from one process's by "
                         f"{found[f'{what}_differ_by']:.2g} of their norm, more than {TOLERANCE}", found)
    left = [path.name for path in (id_file, folder / f"{id_file.name}.heartbeats") if path.exists()]
    if left:
        raise Failed(f"the start left {' and '.join(left)} behind", found)


def _kill(program, folder, until, found, gpus=None):
    of = "" if gpus is None else "-of-one-host"
    id_file = folder / f"id-of-the-killed{of}"
    survivor = Process(program, folder, f"survivor{of}", 0, 2, id_file, gpus)
    killed = Process(program, folder, f"killed{of}", 1, 2, id_file, gpus, ("--die-at", DIE_AT))
    try:
        try:
            status = killed.wait(until)
        except subprocess.TimeoutExpired:
            raise Failed(f"the process that kills itself did not reach step {DIE_AT}", found) from None
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
    for part in ("replica 0 (rank 0 of 2)", "the sum of the gradients", f"step {DIE_AT}", "the heartbeat of rank 1 has stopped"):
        if not re.search(re.escape(part) + r"(?!\d)", found["error"]):
            raise Failed(f"the error of the process whose peer was killed does not contain '{part}': {found['error']}", found)


def _refuse(program, folder, until, found, gpu):
    """Two ranks of one host on one GPU: NCCL rejects them, and both processes end with an error."""
    ranks = [Process(program, folder, "two-ranks-on-one-gpu", process, 2, folder / "id-of-the-refused", [gpu, gpu]) for process in (0, 1)]
    try:
        for rank in ranks:
            try:
                status = rank.wait(until)
            except subprocess.TimeoutExpired:
                raise Failed(f"{rank.printed.stem}, which NCCL rejects, did not end", found) from None
            error = last_line(rank.output())
            found.setdefault("refused", []).append(error)
            if status == 77:
                raise Skipped(error.removeprefix("skipped: "))
            if status != 3 or "the start of the communicator" not in error:
                raise Failed(f"{rank.printed.stem}, which NCCL rejects, ended with status {status}: {error}", found)
    finally:
        for rank in ranks:
            rank.end()


def run_two_processes(program, out, log, seconds, known=lambda found: None):
    """Runs all checks within `seconds`, with their files in a folder in `out`, and adds their output to `log`. Returns the results,
    those of processes of one host under "one_host"; known() is called with those that there are after each check. Raises Failed, or Skipped
    if there is no GPU."""
    until = time.monotonic() + seconds - 2
    found = {}
    gpus = visible_gpus()
    with tempfile.TemporaryDirectory(dir=out) as name:
        folder = pathlib.Path(name)
        try:
            expected = _alone(program, folder, until, found)
            _compare(program, folder, until, found, expected)
            known(found)
            _kill(program, folder, until, found)
            known(found)
            one_host = found["one_host"] = {"gpus": len(gpus)}
            try:
                if len(gpus) > 1:
                    _compare(program, folder, until, one_host, expected, gpus)
                    _kill(program, folder, until, one_host, gpus)
                elif gpus:
                    _refuse(program, folder, until, one_host, gpus[0])
            except Failed as reason:
                raise Failed(f"processes of one host: {reason}", found) from None
        finally:
            for printed in sorted(folder.glob("*.log")):
                append(log, f"--- {printed.stem}\n{printed.read_text(errors='replace')}\n")
    return found
