#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The comparison of `run elastic` with a training that costs nothing: which rates go on, that a command which was ended continues with the
same figures, a rate that diverges, and the page. Usage: elastic_test.py"""

import json
import pathlib
import shutil
import struct
import subprocess
import sys
import tempfile
import unittest
from unittest import mock

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import elastic  # noqa: E402


def write_checkpoint(path, steps):
    tensors = {"weight": (3.0, 4.0), **{f"replica.{r}.weight": (3.0, 4.0 + r % 2) for r in range(elastic.REPLICAS)}}
    tensors["replica.0.optimizer.velocity.weight"] = (steps, steps)
    header, body = {}, b""
    for name, values in tensors.items():
        header[name] = {"dtype": "F32", "shape": [2], "data_offsets": [len(body), len(body) + 8]}
        body += struct.pack("<2f", *values)
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + body)


def write_order(path, steps):
    turns = [0, 1, 2, 3] * steps
    text = json.dumps({"turns": {"dtype": "U16", "shape": [len(turns)], "data_offsets": [0, 2 * len(turns)]}}).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + struct.pack(f"<{len(turns)}H", *turns))


class Training:
    """In the place of cifar10_train. The accuracy grows with the steps, and is best at the third rate; the largest of easgd diverges."""

    def __init__(self, ends_after=None):
        self.commands, self.left = [], ends_after

    def __call__(self, command, **_):
        words = [str(word) for word in command]
        value = dict(zip(words, words[1:]))
        folder, steps, rate = pathlib.Path(value["--train-dir"]), int(value["--max-steps"]), float(value["--learning-rate"])
        existing = sorted(int(file.stem.split("-")[1]) for file in folder.glob("model-*"))
        if ("--resume" in words) != bool(existing) or (existing and existing[-1] >= steps):
            raise AssertionError(f"the folder has {existing} before {words}")
        self.commands.append(words)
        if "elastic" in words and rate == 0.4:
            return subprocess.CompletedProcess(command, 1, "", "cifar10_train: the loss on the test images is nan: the training has diverged\n")
        folder.mkdir(parents=True, exist_ok=True)
        write_checkpoint(folder / f"model-{steps}.safetensors", steps)
        if "--order-log" in words:
            write_order(pathlib.Path(value["--order-log"]), steps)
        if self.left is not None:
            self.left -= 1
            if self.left < 0:
                raise KeyboardInterrupt
        accuracy = round(0.5 - abs(rate - 0.2) + steps / 1e6 + int(value["--seed"]) / 1e4, 6)
        lines = [{"message": "x"}, {"examples_per_second": 10.0}, {"examples_per_second": 4000.0}, {"precision": accuracy, "weights": "trained parameters"},
                 {"precision": accuracy - 0.01, "weights": "moving averages"}]  # fmt: skip
        return subprocess.CompletedProcess(command, 0, "".join(json.dumps(line) + "\n" for line in lines), "")


def run(out, training, *words):
    arguments = ["run elastic", "data", str(out), "--images", "128000", "--only", "sgd,easgd", *words]
    with mock.patch.object(sys, "argv", arguments), mock.patch.object(elastic.subprocess, "run", training), mock.patch("builtins.print"):
        elastic.main()


class ElasticTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.out = pathlib.Path(folder.name) / "out"
        self.machine = mock.patch.object(elastic.machine, "describe", lambda: json.loads(json.dumps(MACHINE)))
        self.machine.start()
        self.addCleanup(self.machine.stop)

    def figures(self):
        return json.loads((self.out / "elastic.json").read_text())

    def test_the_best_rates_go_on(self):
        run(self.out, Training())
        runs = self.figures()["runs"]
        points = {key: len(each["points"]) for key, each in runs.items()}
        self.assertEqual({key: points[key] for key in points if key.startswith("sgd-")},
                         {"sgd-0-0.05-1": 2, "sgd-0-0.1-1": 4, "sgd-0-0.2-1": 8, "sgd-0-0.4-1": 2, "sgd-0-0.2-2": 8, "sgd-0-0.2-3": 8})  # fmt: skip
        self.assertEqual([p["images"] for p in runs["sgd-0-0.2-3"]["points"]], [65536 * (i + 1) for i in range(8)])
        self.assertEqual(points["easgd-64-0.4-1"], 0)
        self.assertIn("diverged", runs["easgd-64-0.4-1"])
        self.assertEqual(self.figures()["images_per_second"], {key: [4000] * elastic.ROUNDS for key in ("sgd-0", "easgd-1", "easgd-16", "easgd-64")})
        # Two of the four replicas are 1 away from a centre of length 5.
        self.assertAlmostEqual(runs["easgd-16-0.2-2"]["points"][-1]["spread"], 0.5**0.5 / 5)
        self.assertEqual(sorted(path.name for path in (self.out / "runs").glob("sgd-*")), ["sgd-0-0.2-1", "sgd-0-0.2-2", "sgd-0-0.2-3"])

    def test_a_command_that_is_ended_goes_on_with_the_same_figures(self):
        run(self.out, Training())
        expected = self.figures()
        self.out = self.out.with_name("ended")
        for steps in (0, 1, 5, 3, 20):
            with self.assertRaises(KeyboardInterrupt):
                run(self.out, Training(ends_after=steps))
        run(self.out, Training())
        self.assertEqual(self.figures(), expected)
        again = Training()
        run(self.out, again)
        self.assertEqual(again.commands, [])

    def test_figures_without_checkpoints_are_continued_by_runs_from_the_beginning(self):
        run(self.out, Training())
        expected = self.figures()
        self.out = self.out.with_name("copied")
        with self.assertRaises(KeyboardInterrupt):
            run(self.out, Training(ends_after=30))
        kept = [key for key, each in self.figures()["runs"].items() if "diverged" in each]
        shutil.rmtree(self.out / "runs")
        again = Training()
        run(self.out, again)
        self.assertEqual(self.figures(), expected)
        for key in kept:
            self.assertFalse(any(key in word for words in again.commands for word in words), key)

    def test_minutes_end_it_and_other_images_are_refused(self):
        training = Training()
        run(self.out, training, "--minutes", "0")
        self.assertEqual(training.commands, [])
        run(self.out, Training())
        with self.assertRaisesRegex(SystemExit, "is of --images 128000, not 2000"):
            run(self.out, Training(), "--images", "2000")

    def test_another_error_than_a_divergence_ends_it(self):
        broken = lambda command, **_: subprocess.CompletedProcess(command, 1, "", "cifar10_train: the folder data does not exist\n")  # noqa: E731
        with self.assertRaisesRegex(SystemExit, "the folder data does not exist"):
            run(self.out, broken)

    def test_the_page_has_what_was_measured(self):
        run(self.out, Training())
        page, picture = (self.out / "elastic.md").read_text(), (self.out / "elastic.svg").read_text()
        self.assertRegex(page, r"\| EASGD, every 16 +\| 0.2 +\| 3 +\| 0.5043 +\| 0.4943 +\| 0.5042 to 0.5044 +\| 4,000 \(4,000 to 4,000\) +\| 0.141 +\| 3.00 +\|")
        self.assertIn("0.05: 0.351; 0.1: 0.401; 0.2: 0.501; 0.4: diverged", page)
        self.assertRegex(page, r"DiLoCo every 16 over synchronous SGD, points +\| >= 0 +\| not measured")
        self.assertEqual(picture.count("<polyline"), 4)  # two methods in two pictures

    def test_staleness_counts_the_exchanges_of_others(self):
        # Replica 0 is twice as fast; with period 2 elastic averaging exchanges with a replica's batches 0, 2, ..., DOWNPOUR with 1, 3, ...
        turns = [0, 0, 1, 0, 0, 1, 0, 0, 1, 0, 0, 1]
        self.assertEqual(elastic.staleness_of(turns, "easgd", 1), elastic.statistics.mean([0, 1, 2, 0, 1, 2, 0, 1, 2, 0]))
        self.assertEqual(elastic.staleness_of(turns, "easgd", 2), elastic.statistics.mean([1, 0, 1, 2]))
        self.assertEqual(elastic.staleness_of(turns, "downpour", 2), elastic.statistics.mean([0, 1, 0, 2]))
        self.assertIsNone(elastic.staleness_of([0, 1, 2, 3], "easgd", 1))

    def test_few_images_have_no_whole_periods(self):
        self.assertEqual([elastic.chunk_steps(images) for images in (100, 2_000, 20_000, 128_000)], [1, 8, 64, 512])


MACHINE = {"processor": "p", "cores": 2, "instructions": ["avx2"], "memory_gib": 1.0, "system": "s", "compilers": ["c"], "date": "d", "commit": "0"}

if __name__ == "__main__":
    unittest.main()
