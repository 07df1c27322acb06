# SPDX-License-Identifier: Apache-2.0
"""Programs that use tests/benchmarks/peers/protocol.py and take turns on one device. Every wait has a limit: if a peer hangs or
ends, only its own figures are missing."""

import json
import os
import select
import subprocess
import tempfile
import time

import descendants
from stages import append, end_process


class Stopped(Exception):
    """A program that ended, printed nothing in time, or printed an invalid answer."""


class Program:
    """A running program, until stop(), which adds to `log` what it printed besides its answers."""

    def __init__(self, key, command, log, **environment):
        self.key, self.log, self.buffer, self.described, self.broken = key, log, b"", None, None
        self.printed, self.mark = tempfile.TemporaryFile(), descendants.new_mark()
        try:
            self.process = subprocess.Popen(
                [str(word) for word in command],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self.printed,
                bufsize=0,
                start_new_session=True,
                env={**os.environ, **environment, descendants.VARIABLE: self.mark},
            )
        except OSError as error:
            self.printed.close()
            raise Stopped(f"{key} could not be started: {error}") from None
        descendants.claim(self.process.pid, self.mark)

    def answer(self, seconds):
        if self.broken:
            raise self.broken
        try:
            return self.next_answer(seconds)
        except Stopped as reason:
            self.broken = reason  # a late answer would be taken for that of the next request
            raise

    def next_answer(self, seconds):
        end = time.monotonic() + seconds
        while True:
            line, found, rest = self.buffer.partition(b"\n")
            if found:
                self.buffer = rest
                if not line.startswith(b"{"):
                    continue
                try:
                    return json.loads(line)
                except ValueError:
                    raise Stopped(f"{self.key} printed a line that is not JSON: {line[:200]!r}") from None
            left = end - time.monotonic()
            if left <= 0 or not select.select([self.process.stdout], [], [], left)[0]:
                raise Stopped(f"{self.key} printed nothing for {seconds:.0f} s")
            data = os.read(self.process.stdout.fileno(), 1 << 16)
            if not data:
                try:
                    status = self.process.wait(timeout=max(1.0, left))
                except subprocess.TimeoutExpired:
                    raise Stopped(f"{self.key} has closed its output and did not end: {self.last_words()}") from None
                raise Stopped(f"{self.key} ended with status {status}: {self.last_words()}")
            self.buffer += data

    def last_words(self):
        lines = [line.strip() for line in self.all_words().splitlines() if line.strip()]
        return lines[-1][-400:] if lines else "it printed nothing"

    def all_words(self):
        self.printed.seek(0)  # this also moves the program's position in the file: the program has ended
        return self.printed.read().decode(errors="replace")

    def ready(self, seconds):
        if self.described is None:
            self.described = self.answer(seconds)
        return self.described

    def work(self, count, seconds, what=""):
        """The mean time of `count` steps; of the part `what` if the program has several."""
        try:
            self.process.stdin.write(f"{what} {count}\n".lstrip().encode())
        except OSError:
            raise Stopped(f"{self.key} ended: {self.last_words()}") from None
        said = self.answer(seconds)
        return sum(said["seconds"]) / len(said["seconds"])

    def stop(self):
        """Ends the program and its children."""
        if self.printed.closed:
            return
        try:
            self.process.stdin.close()
            self.process.wait(timeout=1)
        except (OSError, subprocess.TimeoutExpired):
            pass
        end_process(self.process, self.mark)
        self.process.stdout.close()
        append(self.log, f"--- {self.key}\n{self.all_words()}\n")
        self.printed.close()


def take_turns(entries, rounds, turn, end, longest=60.0):
    """In each round, each entry (key: (program, what)) has a turn of about `turn` seconds; each round begins with another entry.
    Returns the seconds per step in each round of each entry, and the reasons why entries are missing. Starts no round that would
    end after `end`, by time.monotonic(), and waits `longest` seconds for a program."""
    found, missing, counts = {}, {}, {}

    def one(key, count):
        program, what = entries[key]
        try:
            return program.work(count, max(1.0, min(longest, end - time.monotonic())), what)
        except Stopped as reason:
            missing[key] = str(reason)
            found.pop(key, None)
            return None

    for key in entries:
        trial = one(key, 20)
        if trial is not None:
            found[key] = []
            counts[key] = max(10, min(20_000, round(turn / max(trial, 1e-7))))
    for number in range(rounds):
        keys = list(found)
        if not keys or (number > 0 and end - time.monotonic() < 1.5 * turn * len(keys)):
            break
        shift = number % len(keys)
        for key in keys[shift:] + keys[:shift]:
            seconds = one(key, counts[key])
            if seconds is not None:
                found[key].append(seconds)
    return found, missing
