# SPDX-License-Identifier: Apache-2.0
"""A peer's side of the conversation with throughput.py: it says what it is, then runs so many steps for each line it gets.

Start-up, building a graph and the first steps happen before the first answer, so they are never timed. Between two lines the
program waits in a read of its standard input.
"""

import json
import sys
import time


def serve(description, step, warm_up=5):
    """`step(i)` runs training step i to its end and returns its loss as a number."""
    done = 0
    for _ in range(warm_up):
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
