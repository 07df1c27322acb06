# SPDX-License-Identifier: Apache-2.0
"""Stages with a time limit each, and the report that is written after each stage. tests/gpu/run consists of stages."""

import json
import math
import os
import pathlib
import signal
import subprocess
import time
from dataclasses import dataclass
from typing import Callable

# The time limit of all stages of a run together, in seconds.
TOTAL_SECONDS = 530


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


class Report:
    def __init__(self, folder, command, commit):
        self.folder = folder
        self.start = time.monotonic()
        self.data = {
            "command": command,
            "commit": commit,
            "started": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            "machine": {},
            "stages": [],
        }
        self.write()

    def left(self):
        return TOTAL_SECONDS - (time.monotonic() - self.start)

    def run(self, stages):
        """Runs all stages in order."""
        for i, stage in enumerate(stages):
            seconds = min(stage.limit, self.left() - sum(later.least for later in stages[i + 1 :]))
            if not self.stage(stage.name, seconds, stage.body) and stage.needed:
                return

    def stage(self, name, seconds, body):
        """Runs body(seconds) and records its result. An error does not prevent the next stage."""
        entry = {"name": name, "status": "running", "limit_s": max(0, round(seconds))}
        self.data["stages"].append(entry)
        self.write()
        begin = time.monotonic()
        try:
            if seconds < 5:
                raise Skipped("no time was left")
            entry.update(body(seconds) or {})
            entry["status"] = "passed"
        except Skipped as reason:
            entry.update(status="skipped", reason=str(reason))
        except Failed as reason:
            entry.update(reason.found, status="failed", reason=str(reason))
        except subprocess.TimeoutExpired:
            entry.update(status="failed", reason=f"it was ended after {seconds:.0f} s")
        except Exception as error:  # an error in this script must not prevent the other stages
            entry.update(status="failed", reason=f"{type(error).__name__}: {error}")
        entry["seconds"] = round(time.monotonic() - begin, 1)
        self.write()
        print(self.line(entry), flush=True)
        return entry["status"] == "passed"

    @staticmethod
    def line(entry):
        text = f"{entry['status']:8} {entry['name']}"
        if "seconds" in entry:
            text += f"  {entry['seconds']} s"
        return text + (f": {entry['reason']}" if "reason" in entry else "")

    def write(self):
        self.folder.mkdir(parents=True, exist_ok=True)
        (self.folder / "report.json").write_text(json.dumps(well_formed(self.data), indent=1) + "\n")
        lines = [f"tests/gpu/run {self.data['command']}, commit {self.data['commit']}, {self.data['started']}"]
        lines += [f"{name}: {value}" for name, value in self.data["machine"].items()]
        for entry in self.data["stages"]:
            lines.append(self.line(entry))
            lines += [f"    {item['status']:8} {item['name']}  {item['seconds']} s" for item in entry.get("tests", [])]
            lines += [f"    {line}" for line in entry.get("lines", [])]
        (self.folder / "report.txt").write_text("\n".join(lines) + "\n")

    def failed(self):
        return any(entry["status"] == "failed" for entry in self.data["stages"])


def run(command, seconds, log=None, **more):
    """Runs a command and its children for at most `seconds`; returns its status and its output."""
    process = subprocess.Popen(
        [str(word) for word in command],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        start_new_session=True,
        **more,
    )
    output, expired = "", None
    try:
        output, _ = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired as error:
        os.killpg(process.pid, signal.SIGKILL)
        output, _ = process.communicate()
        expired = error
    if log is not None:
        with open(log, "a") as file:
            file.write(f"$ {' '.join(str(word) for word in command)}\n{output}\n")
    if expired is not None:
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
