#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests of the scaling model and of its page: properties, closed forms and cases computed by hand.

    scaling_test.py [unittest's arguments]
"""

import json
import math
import pathlib
import sys
import unittest

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
import model  # noqa: E402
import scaling  # noqa: E402
from model import Link, Machine, Work  # noqa: E402

ALGORITHMS = ("ring", "slices", "tree", "two-level")
# Rates and times that make sums exact: 1 MB/s, a latency of 1 ms.
NETWORK = Link(1e-3, 1e6)
NODE = Link(1e-4, 1e7)
SINGLE = Machine(NODE, NETWORK, 1)
MEASUREMENTS = HERE.parent.parent.parent / "docs" / "measurements"
PUBLISHED = json.loads((HERE / "horovod.json").read_text())


class Exchanges(unittest.TestCase):
    def test_one_device_exchanges_nothing(self):
        for algorithm in ALGORITHMS:
            self.assertEqual(model.exchange_seconds(algorithm, 1000, 1, SINGLE), 0)

    def test_closed_forms(self):
        # 8,000 bytes take 8 ms. A ring of 4: 6 latencies and 6/4 of the bytes.
        self.assertAlmostEqual(model.exchange_seconds("ring", 8000, 4, SINGLE), 6e-3 + 12e-3)
        self.assertAlmostEqual(model.exchange_seconds("slices", 8000, 4, SINGLE), 2e-3 + 12e-3)
        self.assertAlmostEqual(model.exchange_seconds("tree", 8000, 4, SINGLE), 4e-3 + 32e-3)
        self.assertAlmostEqual(model.exchange_seconds("tree", 8000, 5, SINGLE), 6e-3 + 48e-3)
        # In common memory: each of 4 reads 4 slices and writes one, 5/4 of 0.8 ms.
        self.assertAlmostEqual(model.exchange_seconds("shared", 8000, 4, Machine(NODE, NETWORK, 4)), 1e-4 + 1e-3)

    def test_messages_to_many_take_time(self):
        network = Link(1e-3, 1e6, per_message=1e-4)
        self.assertAlmostEqual(model.exchange_seconds("slices", 8000, 4, Machine(NODE, network, 1)), 2e-3 + 6e-4 + 12e-3)

    def test_devices_of_a_node_share_its_link(self):
        # 2 nodes of 2: each device sends a quarter to 2 devices of the other node, both ways and twice: 2 x 4/4 of the bytes.
        self.assertAlmostEqual(model.exchange_seconds("slices", 8000, 4, Machine(NODE, NETWORK, 2)), 2e-3 + 16e-3)
        # A ring enters each node once.
        self.assertAlmostEqual(model.exchange_seconds("ring", 8000, 4, Machine(NODE, NETWORK, 2)), 6e-3 + 12e-3)
        # Two levels: 3/2 of 0.8 ms and a latency on the node, a ring of 2 nodes, and reading the result.
        two = model.exchange_seconds("two-level", 8000, 4, Machine(NODE, NETWORK, 2))
        self.assertAlmostEqual(two, (1e-4 + 1.2e-3) + (2e-3 + 8e-3) + 0.8e-3)

    def test_one_node_uses_the_link_of_the_node(self):
        self.assertAlmostEqual(model.exchange_seconds("ring", 8000, 4, Machine(NODE, NETWORK, 4)), 6e-4 + 1.2e-3)

    def test_memory_in_common_ends_at_the_node(self):
        with self.assertRaisesRegex(ValueError, "several nodes"):
            model.exchange_seconds("shared", 8, 4, SINGLE)
        with self.assertRaisesRegex(ValueError, "no exchange star"):
            model.exchange_seconds("star", 8, 4, SINGLE)

    def test_monotone_in_bytes_and_devices(self):
        for algorithm in ALGORITHMS:
            for devices in (2, 4, 8, 64, 512):
                small, large = (model.exchange_seconds(algorithm, size, devices, SINGLE) for size in (1000, 2000))
                self.assertLess(small, large)
                self.assertLessEqual(large, model.exchange_seconds(algorithm, 2000, 2 * devices, SINGLE))

    def test_a_link_is_found_again(self):
        link = Link(3e-5, 2e9)
        points = [(size, link.latency + 1.5 * size / link.rate) for size in (65536, 4273192)]
        found = model.link_through(points, 1.5)
        self.assertAlmostEqual(found.latency, link.latency)
        self.assertAlmostEqual(found.rate / link.rate, 1)


class Steps(unittest.TestCase):
    # Ready after 20 and 30 ms with 4,000 and 8,000 bytes; the update takes 5 ms.
    work = Work(((20e-3, 4000), (30e-3, 8000)), 30e-3, 5e-3)

    def test_one_device_has_no_loss(self):
        for algorithm in ALGORITHMS:
            self.assertEqual(model.efficiency(self.work, algorithm, 1, SINGLE), 1)

    def test_one_bucket(self):
        work = self.work.at_the_end()
        self.assertEqual(work.buckets, ((30e-3, 12000),))
        expected = 35e-3 + model.exchange_seconds("ring", 12000, 4, SINGLE)
        self.assertAlmostEqual(model.step_seconds(work, "ring", 4, SINGLE), expected)

    def test_a_step_by_hand(self):
        # Slices of 2 devices take 2 ms and the bytes once: the first from 20 to 26 ms, the second from 30 to 40, then the update.
        self.assertAlmostEqual(model.step_seconds(self.work, "slices", 2, SINGLE), 45e-3)
        # Ten times slower: the first from 20 to 62, the second to 144.
        slow = Machine(NODE, Link(1e-3, 1e5), 1)
        self.assertAlmostEqual(model.step_seconds(self.work, "slices", 2, slow), 149e-3)
        # As one bucket it begins at 30 ms.
        self.assertAlmostEqual(model.step_seconds(self.work.at_the_end(), "slices", 2, slow), 157e-3)

    def test_a_fast_network_is_hidden_but_for_the_last_bucket(self):
        fast = Machine(NODE, Link(0, 1e12), 1)
        self.assertAlmostEqual(model.step_seconds(self.work, "ring", 512, fast), 35e-3, places=6)

    def test_smaller_buckets_begin_earlier(self):
        work = Work(((10e-3, 1000), (20e-3, 1000), (30e-3, 10)), 30e-3)
        self.assertLess(model.step_seconds(work, "slices", 2, SINGLE), model.step_seconds(work.at_the_end(), "slices", 2, SINGLE))
        self.assertEqual(len(self.work.divided(3000).buckets), 5)
        self.assertAlmostEqual(sum(size for _, size in self.work.divided(3000).buckets), 12000)

    def test_small_buckets_are_gathered(self):
        work = Work(((1e-3, 100), (2e-3, 300), (3e-3, 5000), (4e-3, 10)), 4e-3)
        self.assertEqual(work.gathered(400).buckets, ((2e-3, 400), (3e-3, 5000), (4e-3, 10)))
        self.assertEqual(work.gathered(1e6).buckets, ((4e-3, 5410),))
        self.assertEqual(work.gathered(1).buckets, work.buckets)

    def test_buckets_that_wait_are_fused(self):
        # The second and the third are ready while the first is exchanged: one exchange, one pair of latencies fewer.
        work = Work(((10e-3, 8000), (11e-3, 100), (12e-3, 100)), 12e-3)
        alone, fused = (model.step_seconds(work, "slices", 2, SINGLE, most) for most in (0, 1000))
        self.assertAlmostEqual(alone, 10e-3 + 10e-3 + 2 * 2.1e-3)
        self.assertAlmostEqual(fused, 10e-3 + 10e-3 + 2.2e-3)

    def test_efficiency_falls_with_devices(self):
        for algorithm in ALGORITHMS:
            values = [model.efficiency(self.work, algorithm, count, SINGLE) for count in scaling.DEVICES]
            self.assertEqual(values, sorted(values, reverse=True))

    def test_the_slowest_of_many(self):
        self.assertEqual(model.largest_of(1), 0)
        # The expected larger of two standard normal values is 1 / sqrt(pi).
        self.assertAlmostEqual(model.largest_of(2), 1 / math.sqrt(math.pi), delta=0.03)
        self.assertAlmostEqual(model.largest_of(512), 3.04, delta=0.03)
        varied = Machine(NODE, Link(0, 1e15), 1, None, 0.1)
        self.assertAlmostEqual(model.step_seconds(self.work, "ring", 2, varied), 35e-3 * (1 + 0.1 * model.largest_of(2)), places=6)

    def test_devices_share_cores(self):
        shared = Machine(Link(0, 1e15), NETWORK, 4, 2)
        self.assertAlmostEqual(model.step_seconds(self.work, "shared", 4, shared), 70e-3, places=6)
        self.assertAlmostEqual(model.step_seconds(self.work, "shared", 2, shared), 35e-3, places=6)


class Published(unittest.TestCase):
    def test_the_sizes_are_the_published_ones(self):
        millions = {name: sum(elements for elements, _ in network["layers"]) / 1e6 for name, network in PUBLISHED["networks"].items()}
        self.assertAlmostEqual(millions["VGG-16"], 138.36, places=2)
        self.assertAlmostEqual(millions["ResNet-101"], 44.55, places=2)
        self.assertAlmostEqual(millions["Inception V3"], 23.8, delta=0.1)

    def test_a_step_of_one_gpu_takes_the_published_time(self):
        for name, network in PUBLISHED["networks"].items():
            self.assertAlmostEqual(scaling.published_efficiency(PUBLISHED, name, 1, 0.02), 1)
            work = scaling.work_of_published(PUBLISHED, name)
            self.assertAlmostEqual(work.compute, 64 / network["images_per_second"])
            self.assertAlmostEqual(work.buckets[-1][0], work.compute)

    def test_the_fit_is_a_least_error(self):
        names = list(PUBLISHED["networks"])[:2]
        best = scaling.fitted_variation(PUBLISHED, names)

        def error(variation):
            return sum((scaling.published_efficiency(PUBLISHED, n, 512, variation) - PUBLISHED["networks"][n]["efficiency"]) ** 2 for n in names)

        for other in (0.0, best + 0.005, max(0.0, best - 0.005), 0.1):
            self.assertLessEqual(error(best), error(other))


class Page(unittest.TestCase):
    def test_the_page_follows_from_the_figures(self):
        results = json.loads((MEASUREMENTS / "processes.json").read_text())
        page, picture = scaling.pages(results, PUBLISHED)
        self.assertEqual((MEASUREMENTS / "scaling.md").read_text(), page, "write it again: tests/benchmarks/run scaling")
        self.assertEqual((MEASUREMENTS / "scaling.svg").read_text(), picture, "write it again: tests/benchmarks/run scaling")

    def test_predictions_from_figures_made_by_the_model(self):
        # What a machine of the model would measure is predicted without error.
        node, network = Link(2e-5, 1e10), Link(4e-5, 2e9)
        alone, sizes = 0.02, (16384, 1_068_298)
        profile = {"gradients": [[1_000_000, 0.011], [68_298, 0.018]], "step": 0.02}
        seconds = {"node float alone": [alone], "hosts alone": [alone]}
        for where, link in (("node", node), ("hosts", network)):
            for elements in sizes:
                size = 4 * elements
                seconds[f"{where} allreduce {elements}"] = [1.0]
                seconds[f"{where} messages {elements}"] = [2 * link.latency + size / link.rate]
                seconds[f"{where} sum {elements}"] = [2 * link.latency + size / link.rate]
                seconds[f"{where} shared {elements}"] = [link.latency + 1.5 * size / link.rate]
        total = 4 * sizes[1]
        seconds["node float shared"] = [alone + node.latency + 1.5 * total / node.rate]
        seconds["hosts messages"] = [alone + 2 * network.latency + total / network.rate]
        results = {"seconds": seconds, "programs": {"steps-float": profile, "hosts-steps": profile}, "machine": {"cores": 2}}
        found = {what: (measured, predicted) for what, _, measured, predicted in scaling.predictions(results)}
        self.assertEqual(len(found), 2)
        for measured, predicted in found.values():
            self.assertAlmostEqual(measured, predicted)


if __name__ == "__main__":
    unittest.main()
