# SPDX-License-Identifier: Apache-2.0
"""The time of a training step of P devices, from the time of its computation, the buckets of its gradient and the network.

One channel sums or averages the buckets, one after the other: bucket k begins when its gradient is ready and bucket k - 1 is done.

    begin(k) = max(ready(k), end(k - 1)),  end(k) = begin(k) + exchange(bytes(k))
    step     = max(the backward pass's end, the last bucket's end) + what follows, the update

With n bytes, P devices, L of them on each node, the latency a and the rate B of a link, the exchanges are

    ring      2 (P - 1) a + 2 (P - 1) / P n / B                      a ring of all devices that enters each node once
    slices    2 (a + (P - 1) o) + 2 L (P - L) / P n / B              all-to-all, the mean of the own slice, all-gather; what leaves
                                                                     a node shares its link, o is the time per message
    tree      2 ceil(log2 P) (a + n / B)                             reduce and broadcast
    shared    a + (P + 1) / P n / B                                  each averages its slice in memory that all have
    two-level shared on each node, then a ring of the nodes, and n / B of the memory to read the result

where the node's own link takes the place of the network's if all devices are on one node. The computation of P devices that wait for
each other is that of the slowest: the mean times 1 + variation x the expected largest of P standard normal values.
"""

import dataclasses
import math
import statistics


@dataclasses.dataclass(frozen=True)
class Link:
    latency: float  # seconds
    rate: float  # bytes per second
    per_message: float = 0.0  # seconds that each further message to another device takes


@dataclasses.dataclass(frozen=True)
class Machine:
    node: Link
    network: Link
    devices_per_node: int
    # The devices of a node that compute at full speed at the same time.
    cores_per_node: int | None = None
    variation: float = 0.0


@dataclasses.dataclass(frozen=True)
class Work:
    """A step of one device: seconds from its start to each bucket's gradient, with the bucket's bytes, in the order in which they are ready;
    the seconds to the end of the backward pass, and of what follows the exchange."""

    buckets: tuple
    backward_end: float
    after: float = 0.0

    @property
    def compute(self):
        return self.backward_end + self.after

    def scaled(self, factor):
        return Work(tuple((factor * ready, size) for ready, size in self.buckets), factor * self.backward_end, factor * self.after)

    def divided(self, most):
        """With each bucket of more than `most` bytes divided."""
        parts = []
        for ready, size in self.buckets:
            count = max(1, math.ceil(size / most))
            parts += [(ready, size / count)] * count
        return dataclasses.replace(self, buckets=tuple(parts))

    def gathered(self, least):
        """With neighbouring buckets joined until they have at least `least` bytes; the last may have fewer."""
        parts, size = [], 0
        for number, (ready, more) in enumerate(self.buckets):
            size += more
            if size >= least or number + 1 == len(self.buckets):
                parts.append((ready, size))
                size = 0
        return dataclasses.replace(self, buckets=tuple(parts))

    def at_the_end(self):
        """With one bucket, at the end of the backward pass: nothing overlaps."""
        return dataclasses.replace(self, buckets=((self.backward_end, sum(size for _, size in self.buckets)),))


def largest_of(devices):
    """The expected largest of so many standard normal values, by Blom's approximation: 0 for one, 0.59 for 2, 3.03 for 512."""
    return statistics.NormalDist().inv_cdf((devices - 0.375) / (devices + 0.25)) if devices > 1 else 0.0


def exchange_seconds(algorithm, size, devices, machine):
    """The seconds in which `devices` devices sum or average `size` bytes."""
    if devices == 1:
        return 0.0
    here = min(devices, machine.devices_per_node)
    nodes = math.ceil(devices / machine.devices_per_node)
    link = machine.node if nodes == 1 else machine.network
    if algorithm == "ring":
        return 2 * (devices - 1) * link.latency + 2 * (devices - 1) / devices * size / link.rate
    if algorithm == "slices":
        leaving = here * (devices - here) if nodes > 1 else devices - 1
        return 2 * (link.latency + (devices - 1) * link.per_message) + 2 * leaving / devices * size / link.rate
    if algorithm == "tree":
        return 2 * math.ceil(math.log2(devices)) * (link.latency + size / link.rate)
    if algorithm == "shared":
        if nodes > 1:
            raise ValueError("devices of several nodes have no memory in common")
        return link.latency + (devices + 1) / devices * size / link.rate
    if algorithm == "two-level":
        if nodes == 1:
            return exchange_seconds("shared", size, devices, machine)
        of_node = machine.node.latency + (here + 1) / here * size / machine.node.rate
        of_network = 2 * (nodes - 1) * machine.network.latency + 2 * (nodes - 1) / nodes * size / machine.network.rate
        return of_node + of_network + size / machine.node.rate
    raise ValueError(f"there is no exchange {algorithm}")


def compute_factor(devices, machine):
    here = min(devices, machine.devices_per_node)
    shared = max(1.0, here / machine.cores_per_node) if machine.cores_per_node else 1.0
    return shared * (1 + machine.variation * largest_of(devices))


def step_seconds(work, algorithm, devices, machine, fused=0):
    """With `fused`, neighbouring buckets that are ready when the channel is free are exchanged as one, of at most so many bytes."""
    work = work.scaled(compute_factor(devices, machine))
    if devices == 1:
        return work.compute
    end, left = 0.0, list(work.buckets)
    while left:
        ready, size = left.pop(0)
        begin = max(ready, end)
        while left and left[0][0] <= begin and size + left[0][1] <= fused:
            size += left.pop(0)[1]
        end = begin + exchange_seconds(algorithm, size, devices, machine)
    return max(work.backward_end, end) + work.after


def efficiency(work, algorithm, devices, machine, fused=0):
    """The fraction of `devices` times the samples per second of one device."""
    return work.compute / step_seconds(work, algorithm, devices, machine, fused)


def link_through(points, factor=1.0):
    """The link with the latency and the rate at which the exchange of two sizes, [(bytes, seconds), ...], takes these times, where an exchange
    takes latency + factor x bytes / rate. A latency below 0 is 0."""
    (small, seconds_of_small), (large, seconds_of_large) = points
    rate = factor * (large - small) / max(seconds_of_large - seconds_of_small, 1e-9)
    return Link(max(0.0, seconds_of_small - factor * small / rate), rate)
