# SPDX-License-Identifier: Apache-2.0
"""The peer's side of the protocol of turns.py: the program describes itself, then runs the number of steps in each line that it reads.

The start, the construction of a graph and the first steps (the environment variable WARM_UP, default 5) come before the first answer, so
they are not timed. Between two lines the program waits in a read of its standard input.
"""

import json
import os
import sys
import time


def serve(description, step):
    """`step(i)` runs training step i and returns its loss as a number."""
    done = 0
    for _ in range(int(os.environ.get("WARM_UP", "5"))):
        step(done)
        done += 1
    print(json.dumps(description), flush=True)
    for line in sys.stdin:
        steps = int(line)
        seconds = []
        loss = 0.0
        for _ in range(steps):
            start = time.perf_counter()
            loss = step(done)
            seconds.append(time.perf_counter() - start)
            done += 1
        print(json.dumps({"seconds": seconds, "loss": loss}), flush=True)


def serve_queued(description, programs):
    """The same for a device with a queue. `programs[key]` is (queue, wait): `queue(i)` queues training step i, `wait()` waits for all
    steps and returns the last loss. A line is a key and a number of steps; the answer has their mean time."""
    done = dict.fromkeys(programs, 0)
    print(json.dumps(description), flush=True)
    for line in sys.stdin:
        *words, count = line.split()
        key, steps = " ".join(words), int(count)
        queue, wait = programs[key]
        wait()
        start = time.perf_counter()
        for i in range(done[key], done[key] + steps):
            queue(i)
        loss = wait()
        seconds = time.perf_counter() - start
        done[key] += steps
        print(json.dumps({"seconds": [seconds / steps], "loss": loss}), flush=True)
