# SPDX-License-Identifier: Apache-2.0
"""Stages with a time limit each, and the report that is written after each stage. tests/gpu/run consists of stages."""

import contextlib
import json
import math
import os
import pathlib
import subprocess
import tempfile
import threading
import time
from dataclasses import dataclass
from typing import Callable

import descendants

# The time limit of all stages of a run together, in seconds.
TOTAL_SECONDS = 530
# All limits of a run on the emulator are so many times those of a GPU: processors compute its work, on a slow machine with others beside them,
# and a limit may then end only what hangs.
EMULATED_TIMES = 100
# The format of report.json: tests/gpu/report reads no other.
FORMAT = 2
# A process that was killed has so long to end. One that waits for a GPU's driver may never do it.
END_SECONDS = 10.0
# No log grows beyond this.
LOG_BYTES = 12 << 20


class Skipped(Exception):
    """Raised by a stage that cannot run on this machine; the report has the reason."""


class Failed(Exception):
    """Raised by a stage that found an error; the report has the message and the other results."""

    def __init__(self, reason, found=None):
        super().__init__(reason)
        self.found = found or {}


@dataclass
class Stage:
    """`body(seconds)` has at most `limit` seconds. It has at least `least`, because the stages before it may not use the `least` of
    the stages after them. If a stage that is `needed` does not pass, the stages after it do not run.
    """

    name: str
    limit: float
    least: float
    body: Callable
    needed: bool = False


def well_formed(value):
    """The same value without numbers that JSON cannot express."""
    if isinstance(value, dict):
        return {str(key): well_formed(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [well_formed(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def write_whole(path, text):
    """Replaces a file, so that a reader or a run that is cut finds the old text or the new one."""
    temporary = path.with_name(f".{path.name}.new")
    temporary.write_text(text)
    temporary.replace(path)


def append(log, text):
    """Adds to a log, which stays below LOG_BYTES: of what would exceed it only the end is kept."""
    kept = max(0, LOG_BYTES - (log.stat().st_size if log.exists() else 0))
    data = text.encode(errors="replace")
    if len(data) > kept:
        data = b"(shortened)\n" + data[len(data) - min(len(data), kept // 2) :] if kept > 64 else b""
    with open(log, "ab") as file:
        file.write(data)


class Report:
    """The results of the stages, in `folder` as report.json and report.txt, which are written after each stage. All together have `total`
    seconds."""

    def __init__(self, folder, command, commit, total=TOTAL_SECONDS):
        self.folder, self.total = folder, total
        self.start = time.monotonic()
        self.writing = threading.Lock()
        # Called after each stage, and at the end.
        self.after = lambda: None
        # The entry of the stage that runs.
        self.running = None
        self.data = {
            "format": FORMAT,
            "command": command,
            "commit": commit,
            "started": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            "machine": {},
            "stages": [],
            "ended": False,
        }
        self.write()

    def left(self):
        return self.total - (time.monotonic() - self.start)

    def run(self, stages):
        """Runs all stages in order. After one that is needed and did not pass, the others are skipped."""
        without = None
        for i, stage in enumerate(stages):
            if without is not None:
                self.data["stages"].append({"name": stage.name, "status": "skipped", "reason": f"'{without}' did not pass", "seconds": 0.0})
                continue
            seconds = min(stage.limit, self.left() - sum(later.least for later in stages[i + 1 :]))
            if not self.stage(stage.name, seconds, stage.body) and stage.needed:
                without = stage.name
            self.after()
        self.end()
        self.after()

    def end(self):
        self.data.update(ended=True, seconds=round(time.monotonic() - self.start, 1))
        self.write()

    def stage(self, name, seconds, body):
        """Runs body(seconds) and records its result. An error does not prevent the next stage, and no process survives the stage but
        those that another command has claimed."""
        entry = {"name": name, "status": "running", "limit_s": max(0, round(seconds))}
        with self.writing:
            self.data["stages"].append(entry)
            self.running = entry
            self.write()
        begin = time.monotonic()
        found = {"status": "passed"}
        try:
            if seconds < 2:
                raise Skipped("no time was left")
            found.update(body(seconds) or {})
        except Skipped as reason:
            found.update(status="skipped", reason=str(reason))
        except Failed as reason:
            found.update(reason.found, status="failed", reason=str(reason))
        except subprocess.TimeoutExpired as error:
            said = last_lines(error.output or "", 1)
            found.update(status="failed", reason=f"it was ended after {seconds:.0f} s" + (f": {said}" if said else ""))
        except Exception as error:  # an error in this script must not prevent the other stages
            found.update(status="failed", reason=f"{type(error).__name__}: {error}")
        left = descendants.end_strays()
        if left:
            found["survivors"] = sorted(left)
        with self.writing:
            entry.update(found, seconds=round(time.monotonic() - begin, 1))
            self.running = None
            self.write()
        print(self.line(entry), flush=True)
        return entry["status"] == "passed"

    def known(self, found):
        """Writes what the stage that runs has found by now, so that a run that is cut short has reported it. Any thread may call it."""
        with self.writing:
            if self.running is not None:
                self.running.update(well_formed(found))  # a copy: the stage goes on with its own
                self.write()

    @staticmethod
    def line(entry):
        text = f"{entry['status']:8} {entry['name']}"
        if "seconds" in entry:
            text += f"  {entry['seconds']} s"
        return text + (f": {entry['reason']}" if "reason" in entry else "")

    def write(self):
        self.folder.mkdir(parents=True, exist_ok=True)
        write_whole(self.folder / "report.json", json.dumps(well_formed(self.data), indent=1) + "\n")
        lines = [f"tests/gpu/run {self.data['command']}, commit {self.data['commit']}, {self.data['started']}"]
        lines += [f"{name}: {value}" for name, value in self.data["machine"].items()]
        for entry in self.data["stages"]:
            lines.append(self.line(entry))
            lines += [f"    {item['status']:8} {item['name']}  {item['seconds']} s" for item in entry.get("tests", [])]
            lines += [f"    {line}" for line in entry.get("lines", [])]
        lines.append(f"ended after {self.data['seconds']} s" if self.data["ended"] else "not ended yet")
        write_whole(self.folder / "report.txt", "\n".join(lines) + "\n")

    def failed(self):
        return any(entry["status"] == "failed" for entry in self.data["stages"])

    def watch(self, seconds=None):
        """Ends this program with everything that it has started, after this time at the latest, by default soon after that of all stages: a
        stage that waits for something that no limit covers is reported as failed."""
        seconds = self.total + 5 if seconds is None else seconds

        def end():
            time.sleep(max(0.0, seconds - (time.monotonic() - self.start)))
            self.writing.acquire()  # to the end: no stage reports after this
            try:
                for entry in self.data["stages"]:
                    if entry["status"] == "running":
                        entry.update(status="failed", reason="the time of the whole run was over", seconds=entry["limit_s"])
                self.end()
                descendants.end_all()
                print("ended: the time of the whole run was over", flush=True)
            finally:
                os._exit(1)

        threading.Thread(target=end, daemon=True).start()


def wait_for(process, printed, seconds, quiet):
    """Waits until the process ends. Raises TimeoutExpired after `seconds`, or when the file has not grown for `quiet` seconds, unless that is
    None."""
    if quiet is None:
        process.wait(timeout=seconds)
        return
    size, grown, end = 0, time.monotonic(), time.monotonic() + seconds
    while True:
        try:
            process.wait(timeout=0.1)
            return
        except subprocess.TimeoutExpired:
            now, size_now = time.monotonic(), os.fstat(printed.fileno()).st_size
            if size_now != size:
                size, grown = size_now, now
            if now > end or now > grown + quiet:
                raise subprocess.TimeoutExpired(process.args, seconds if now > end else quiet) from None


def end_process(process, mark):
    """Kills a process and all that it has started. Returns when it has ended, or after END_SECONDS."""
    descendants.end_command(process.pid, mark)
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(timeout=END_SECONDS)


def run(command, seconds, log=None, env=None, quiet=None, **more):
    """Runs a command for at most `seconds`; returns its status and its output. Nothing that it has started survives it. `env` is added
    to the environment. With `quiet` it is ended, too, when it has printed nothing for so many seconds."""
    mark = descendants.new_mark()
    # A file and not a pipe: a pipe ends when the last process that inherited it ends.
    with tempfile.TemporaryFile() as printed:
        process = subprocess.Popen(
            [str(word) for word in command],
            stdin=subprocess.DEVNULL,
            stdout=printed,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            env={**os.environ, **(env or {}), descendants.VARIABLE: mark},
            **more,
        )
        descendants.claim(process.pid, mark)
        expired = None
        try:
            wait_for(process, printed, seconds, quiet)
        except subprocess.TimeoutExpired as error:
            expired = error
        finally:
            end_process(process, mark)
        printed.seek(0)
        output = printed.read().decode(errors="replace")
    if log is not None:
        append(log, f"$ {' '.join(str(word) for word in command)}\n{output}\n")
    if expired is not None:
        expired.output = output
        raise expired
    return process.returncode, output


def last_lines(output, count=3):
    return " | ".join([line.strip() for line in output.splitlines() if line.strip()][-count:])[-600:]


def json_of(command, seconds, log):
    """The last JSON object in the output of a program, on one line or on several."""
    status, output = run(command, seconds, log)
    if status != 0:
        raise Failed(f"{pathlib.Path(command[0]).name} ended with status {status}: {last_lines(output, 1)}")
    try:
        begins = [place for place in range(len(output)) if output[place] == "{" and (place == 0 or output[place - 1] == "\n")]
        return json.loads(output[begins[-1] :])
    except (IndexError, ValueError):
        raise Failed(f"{pathlib.Path(command[0]).name} printed no JSON: {last_lines(output, 1)}") from None
