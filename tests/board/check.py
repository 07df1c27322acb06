#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Reads an event folder with TensorBoard itself and compares it with the table that write_events wrote beside it.

Usage: check.py FOLDER FILE.csv. Needs the packages tensorboard and pillow. Three readers have to see every tag, every
step and every value, and nothing of what the broken run wrote after the step at which it was taken up again:
TensorBoard's EventAccumulator, its data provider, and a running server with its fast data loading.
"""
import collections
import csv
import io
import json
import math
import os
import subprocess
import sys
import time
import urllib.error
import urllib.parse
import urllib.request

from PIL import Image
from tensorboard.backend.event_processing import data_provider, event_accumulator, plugin_event_multiplexer
from tensorboard.context import RequestContext
from tensorboard.data import provider
from tensorboard.util import tensor_util

problems = 0


def check(condition, *words):
    global problems
    if not condition:
        problems += 1
        print("check.py:", *words)


def read_expected(path):
    """{kind: {tag: {step: [value, ...]}}}"""
    expected = collections.defaultdict(lambda: collections.defaultdict(dict))
    with open(path, newline="") as file:
        rows = csv.reader(file)
        next(rows)
        for kind, tag, step, *values in rows:
            expected[kind][tag][int(step)] = [float(value) for value in values]
    return expected


def close(a, b):
    return math.isclose(a, b, rel_tol=1e-6, abs_tol=1e-30)


def compare(reader, kind, tag, found, expected, same):
    """`found` is a list of (step, value)."""
    steps = [step for step, _ in found]
    check(steps == sorted(expected), f"{reader}: {kind} {tag} has the steps {steps} instead of {sorted(expected)}")
    for step, value in found:
        if step in expected:
            check(same(value, expected[step]), f"{reader}: {kind} {tag} at step {step} is {value} instead of {expected[step]}")


def same_tags(reader, kind, found, expected):
    check(set(found) == set(expected), f"{reader}: {kind} tags differ: {sorted(set(found) ^ set(expected))}")


def same_text(text, expected):
    data = text.encode()
    return [float(len(data)), float(sum(data))] == expected


def same_image(png, expected):
    image = Image.open(io.BytesIO(png))
    channels = {"L": 1, "RGB": 3}[image.mode]
    return [float(image.height), float(image.width), float(channels), float(sum(image.tobytes()))] == expected


def same_buckets(buckets, expected):
    """[[left, right, count], ...] against the count, the least value, the largest and the sum."""
    count, least, most = sum(b[2] for b in buckets), buckets[0][0], buckets[-1][1]
    rises = all(b[0] <= b[1] and b[1] == a[0] for b, a in zip(buckets, buckets[1:]))
    return rises and count == expected[0] and close(least, expected[1]) and close(most, expected[2])


def check_accumulator(folder, expected):
    reader = "EventAccumulator"
    events = event_accumulator.EventAccumulator(folder, size_guidance=dict.fromkeys(
        event_accumulator.DEFAULT_SIZE_GUIDANCE, 0), purge_orphaned_data=True)
    events.Reload()
    tags = events.Tags()
    for kind, key in (("scalar", "scalars"), ("histogram", "histograms"), ("image", "images"), ("text", "tensors")):
        same_tags(reader, kind, tags[key], expected[kind])
    for tag, values in expected["scalar"].items():
        compare(reader, "scalar", tag, [(e.step, e.value) for e in events.Scalars(tag)], values, lambda a, b: close(a, b[0]))
    for tag, values in expected["histogram"].items():
        found = [(e.step, e.histogram_value) for e in events.Histograms(tag)]
        compare(reader, "histogram", tag, found, values,
                lambda h, v: h.num == v[0] and sum(h.bucket) == v[0] and all(map(close, [h.min, h.max, h.sum], v[1:])))
    for tag, values in expected["image"].items():
        compare(reader, "image", tag, [(e.step, e.encoded_image_string) for e in events.Images(tag)], values, same_image)
    for tag, values in expected["text"].items():
        found = [(e.step, tensor_util.make_ndarray(e.tensor_proto).item().decode()) for e in events.Tensors(tag)]
        compare(reader, "text", tag, found, values, same_text)


def check_provider(folder, expected):
    reader = "data provider"
    multiplexer = plugin_event_multiplexer.EventMultiplexer(tensor_size_guidance=dict.fromkeys(
        ("scalars", "histograms", "images", "text"), 0))
    multiplexer.AddRunsFromDirectory(folder)
    multiplexer.Reload()
    source = data_provider.MultiplexerDataProvider(multiplexer, folder)
    context = RequestContext()
    everything = dict(experiment_id="", downsample=10**6)

    def series(read, plugin):
        runs = read(context, plugin_name=plugin, **everything)
        return next(iter(runs.values())) if runs else {}

    scalars = series(source.read_scalars, "scalars")
    same_tags(reader, "scalar", scalars, expected["scalar"])
    for tag, data in scalars.items():
        compare(reader, "scalar", tag, [(d.step, d.value) for d in data], expected["scalar"][tag], lambda a, b: close(a, b[0]))
    histograms = series(source.read_tensors, "histograms")
    same_tags(reader, "histogram", histograms, expected["histogram"])
    for tag, data in histograms.items():
        compare(reader, "histogram", tag, [(d.step, d.numpy.tolist()) for d in data], expected["histogram"][tag], same_buckets)
    images = series(source.read_blob_sequences, "images")
    same_tags(reader, "image", images, expected["image"])
    for tag, data in images.items():
        # The first two blobs are width and height.
        found = [(d.step, source.read_blob(context, blob_key=d.values[2].blob_key)) for d in data]
        compare(reader, "image", tag, found, expected["image"][tag], same_image)
    texts = series(source.read_tensors, "text")
    same_tags(reader, "text", texts, expected["text"])
    for tag, data in texts.items():
        compare(reader, "text", tag, [(d.step, d.numpy.item().decode()) for d in data], expected["text"][tag], same_text)


class Server:
    """A TensorBoard of its own, ended with this object."""

    def __init__(self, folder):
        command = [sys.executable, "-m", "tensorboard.main", "--logdir", folder, "--port", "0", "--host", "127.0.0.1",
                   "--load_fast=true", "--samples_per_plugin", "scalars=100000,histograms=100000,images=100000,text=100000"]
        self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        self.address = None
        for line in self.process.stderr:
            if "http://" in line:
                port = line.split("http://", 1)[1].split("/", 1)[0].rsplit(":", 1)[1]
                self.address = f"http://127.0.0.1:{port}"
                break

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.terminate()
        self.process.wait()

    def get(self, path, **query):
        query = "?" + urllib.parse.urlencode(query) if query else ""
        with urllib.request.urlopen(f"{self.address}/data/plugin/{path}{query}", timeout=30) as answer:
            return answer.read()

    def get_json(self, path, **query):
        return json.loads(self.get(path, **query))


def wait_for_data(server):
    """It loads in the background: until what it has read no longer grows."""
    def seen():
        try:
            tags = server.get_json("scalars/tags")
            return [(run, tag, len(server.get_json("scalars/scalars", run=run, tag=tag))) for run in tags for tag in sorted(tags[run])[:1]]
        except urllib.error.URLError:
            return []

    before, end = [], time.monotonic() + 60
    while time.monotonic() < end:
        now = seen()
        if now and now == before:
            return
        before = now
        time.sleep(1)


def check_server(folder, expected):
    reader = "server"
    with Server(folder) as server:
        check(server.address is not None, "TensorBoard did not start")
        if server.address is None:
            return
        wait_for_data(server)
        run, tags = next(iter(server.get_json("scalars/tags").items()))
        same_tags(reader, "scalar", tags, expected["scalar"])
        for tag, values in expected["scalar"].items():
            found = [(step, value) for _, step, value in server.get_json("scalars/scalars", run=run, tag=tag)]
            compare(reader, "scalar", tag, found, values, lambda a, b: close(a, b[0]))
        same_tags(reader, "histogram", server.get_json("histograms/tags")[run], expected["histogram"])
        for tag, values in expected["histogram"].items():
            found = [(step, buckets) for _, step, buckets in server.get_json("histograms/histograms", run=run, tag=tag)]
            compare(reader, "histogram", tag, found, values, same_buckets)
            percentiles = server.get_json("distributions/distributions", run=run, tag=tag)
            check([p[1] for p in percentiles] == sorted(values), f"{reader}: the distribution {tag} has other steps")
        same_tags(reader, "image", server.get_json("images/tags")[run], expected["image"])
        for tag, values in expected["image"].items():
            listed = server.get_json("images/images", run=run, tag=tag, sample=0)
            found = [(image["step"], server.get("images/individualImage?" + image["query"])) for image in listed]
            compare(reader, "image", tag, found, values, same_image)
        same_tags(reader, "text", server.get_json("text/tags")[run], expected["text"])
        for tag, values in expected["text"].items():
            steps = [text["step"] for text in server.get_json("text/text", run=run, tag=tag)]
            check(steps == sorted(values), f"{reader}: the text {tag} has the steps {steps} instead of {sorted(values)}")


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    folder, table = sys.argv[1:]
    expected = read_expected(table)
    for kind in ("scalar", "histogram", "image", "text"):
        check(expected[kind], f"{table} has no {kind}")
    check_accumulator(folder, expected)
    check_provider(folder, expected)
    check_server(folder, expected)
    counts = ", ".join(f"{len(expected[kind])} {kind}" for kind in expected)
    print(f"check.py: {counts} tags, {sum(len(t) for k in expected.values() for t in k.values())} values, {problems} problems")
    sys.exit(1 if problems else 0)


if __name__ == "__main__":
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    main()
