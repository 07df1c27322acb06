# SPDX-License-Identifier: Apache-2.0
"""The scaling model (model.py), calibrated by the exchanges and the computation that `run processes` has measured, and compared with the steps
that it has measured and with Horovod's published efficiencies. Writes docs/measurements/scaling.md and scaling.svg from
docs/measurements/processes.json and horovod.json; nothing is measured.

    run scaling [--no-save]
"""

import argparse
import json
import pathlib
import statistics
import sys

import model

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
import machine  # noqa: E402

BUCKET = 1 << 18  # the default of MpiAllReduce
DEVICES = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)
BYTES = 4


# Calibration by what was measured here.


def median(results, key):
    return statistics.median(results["seconds"][key])


def size_names(results):
    """The two sizes, in elements, in which exchanges were measured: the smaller and the larger."""
    return sorted({int(key.split()[-1]) for key in results["seconds"] if key.startswith("node allreduce ")})


def link_of(results, where, exchange, factor=1.0, latencies=2):
    """The link that an exchange of two sizes between two processes has shown; it has the latency `latencies` times."""
    points = [(BYTES * elements, median(results, f"{where} {exchange} {elements}")) for elements in size_names(results)]
    found = model.link_through(points, factor)
    return model.Link(found.latency / latencies, found.rate)


def work_of(results, job, alone):
    """A step of the job `job`, whose parts are in the proportions of its profile, and whose whole takes `alone` seconds."""
    profile = results["programs"][job]
    factor = alone / profile["step"]
    buckets = tuple((factor * ready, BYTES * elements) for elements, ready in profile["gradients"])
    return model.Work(buckets, buckets[-1][0], alone - buckets[-1][0])


def predictions(results):
    """[(what, what was calibrated, measured seconds, predicted seconds)]"""
    seconds, cores = results["seconds"], results["machine"]["cores"]
    found = []

    def add(what, by, key, work, algorithm, devices, of_machine):
        if key in seconds:
            found.append((what, by, median(results, key), model.step_seconds(work, algorithm, devices, of_machine)))

    if "node float alone" in seconds:
        work = work_of(results, "steps-float", median(results, "node float alone"))
        shared = link_of(results, "node", "shared", 1.5, 1)
        messages, sums = link_of(results, "node", "messages"), link_of(results, "node", "sum")
        node = model.Machine(shared, shared, cores, cores)
        add("2 processes, memory in common", "2 alone; exchange", "node float shared", work.at_the_end(), "shared", 2, node)
        many = model.Machine(shared, shared, 4, cores)
        add(f"4 processes on {cores} cores, memory in common", "2 alone; exchange of 2", "four shared", work.at_the_end(), "shared", 4, many)
        add("2 processes, messages", "2 alone; exchange", "node float messages", work.at_the_end(), "slices", 2, model.Machine(messages, messages, cores, cores))
        by_buckets = work.gathered(BUCKET)
        add("2 processes, `MpiAllReduce`", "2 alone; exchange", f"node float sums {BUCKET}", by_buckets, "slices", 2, model.Machine(sums, sums, cores, cores))
    for where, title in (("hosts", "no limit"), ("hosts 1gbit", "1 Gbit/s")):
        if f"{where} alone" not in seconds:
            continue
        work = work_of(results, "hosts-steps", median(results, f"{where} alone"))
        messages, sums = link_of(results, where, "messages"), link_of(results, where, "sum")
        add(f"2 hosts, {title}, messages", "2 alone; exchange", f"{where} messages", work.at_the_end(), "slices", 2, model.Machine(messages, messages, 1))
        two = model.Machine(sums, sums, 1)
        add(f"2 hosts, {title}, `MpiAllReduce`, one sum", "2 alone; exchange", f"{where} sums 0", work.at_the_end(), "slices", 2, two)
        add(f"2 hosts, {title}, `MpiAllReduce`, buckets of 256 KB", "2 alone; exchange", f"{where} sums {BUCKET}", work.gathered(BUCKET), "slices", 2, two)
        if "four on hosts alone" in seconds:
            four = work_of(results, "hosts-steps-4", median(results, "four on hosts alone"))
            key = where.replace("hosts", "four on hosts", 1)
            add(f"2 hosts with 2 processes each, {title}, messages", "4 alone; exchange of 2", f"{key} messages", four.at_the_end(), "slices", 4, model.Machine(messages, messages, 2))
    return found


# Published figures.


def work_of_published(published, name):
    network = published["networks"][name]
    step = published["batch"] / network["images_per_second"]
    forward = step / (1 + published["backward_over_forward"])
    whole, now, buckets = sum(count for _, count in network["layers"]), forward, []
    for elements, count in reversed(network["layers"]):
        now += (step - forward) * count / whole
        buckets.append((now, BYTES * elements))
    return model.Work(tuple(buckets), step)


def machine_of_published(published, variation):
    per_node = published["devices_per_node"]
    rate = published["network_bits_per_second"] / 8
    mean = (published["network_latency"] + (per_node - 1) * published["node_latency"]) / per_node
    return model.Machine(model.Link(published["node_latency"], 10e9), model.Link(mean, rate), per_node, None, variation)


def published_efficiency(published, name, devices, variation):
    return model.efficiency(work_of_published(published, name), "ring", devices, machine_of_published(published, variation), published["fusion_bytes"])


def fitted_variation(published, names):
    """The variation of the computation, in steps of 0.001, with which the efficiencies of `names` are nearest to the published ones."""

    def error(variation):
        return sum((published_efficiency(published, name, published["devices"], variation) - published["networks"][name]["efficiency"]) ** 2 for name in names)

    return min((i / 1000 for i in range(101)), key=error)


# The page.


def picture(curves, points):
    """An SVG of efficiencies by the number of devices: `curves` is {name: [(devices, efficiency)]}, `points` the published ones."""
    width, height, left, top, wide, high = 640, 360, 56, 16, 430, 296
    colours = ("#0072b2", "#009e73", "#d55e00", "#cc79a7")

    def x(devices):
        return left + wide * DEVICES.index(devices) / (len(DEVICES) - 1)

    def y(value):
        return top + high * (1 - (value - 0.4) / 0.6)

    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" font-family="sans-serif" font-size="12">',
        f'<rect width="{width}" height="{height}" fill="white"/>',
    ]
    for percent in range(40, 101, 10):
        lines.append(f'<line x1="{left}" x2="{left + wide}" y1="{y(percent / 100):.1f}" y2="{y(percent / 100):.1f}" stroke="#dddddd"/>')
        lines.append(f'<text x="{left - 6}" y="{y(percent / 100) + 4:.1f}" text-anchor="end">{percent} %</text>')
    for devices in DEVICES:
        lines.append(f'<text x="{x(devices):.1f}" y="{top + high + 18}" text-anchor="middle">{devices}</text>')
    lines.append(f'<text x="{left + wide / 2}" y="{top + high + 38}" text-anchor="middle">devices</text>')
    for number, (name, curve) in enumerate(curves.items()):
        colour = colours[number % len(colours)]
        path = " ".join(f"{x(devices):.1f},{y(value):.1f}" for devices, value in curve)
        lines.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>')
        lines.append(f'<text x="{left + wide + 28}" y="{top + 20 + 20 * number}" fill="{colour}">{name}</text>')
        if name in points:
            devices, value = points[name]
            lines.append(f'<circle cx="{x(devices):.1f}" cy="{y(value):.1f}" r="5" fill="white" stroke="{colour}" stroke-width="2"/>')
    lines.append(f'<text x="{left + wide + 28}" y="{top + 20 + 20 * len(curves)}">circles: published</text>')
    return "\n".join([*lines, "</svg>", ""])


def percent(value):
    return f"{100 * value:.1f} %"


def pages(results, published):
    """(the page, the picture)"""
    measured = [
        [what, by, f"{1e3 * seconds:.2f}", f"{1e3 * predicted:.2f}", f"{100 * (predicted / seconds - 1):+.0f} %"]
        for what, by, seconds, predicted in predictions(results)
    ]
    errors = [abs(predicted / seconds - 1) for _, _, seconds, predicted in predictions(results)]
    fit_by = list(published["networks"])[:2]
    variation, devices = fitted_variation(published, fit_by), published["devices"]
    compared, curves, points = [], {}, {}
    for name, network in published["networks"].items():
        plain, fitted = (published_efficiency(published, name, devices, v) for v in (0.0, variation))
        one = model.efficiency(work_of_published(published, name).at_the_end(), "ring", devices, machine_of_published(published, 0.0))
        megabytes = BYTES * sum(elements for elements, _ in network["layers"]) / 1e6
        compared.append(
            [
                name,
                f"{megabytes:.0f}",
                f"{network['images_per_second']:g}",
                percent(network["efficiency"]),
                f"{percent(plain)} ({100 * (plain - network['efficiency']):+.1f})",
                f"{percent(fitted)} ({100 * (fitted - network['efficiency']):+.1f})" + ("" if name in fit_by else ", predicted"),
                percent(one),
            ]
        )
        curves[name] = [(count, published_efficiency(published, name, count, variation)) for count in DEVICES]
        points[name] = (devices, network["efficiency"])
    tutorial, rows = {}, []
    if "hosts alone" in results["seconds"]:
        work = work_of(results, "hosts-steps", median(results, "hosts alone"))
        node = link_of(results, "node", "shared", 1.5, 1)
        latency = link_of(results, "hosts", "messages").latency
        for gigabits in (1, 10, 25):
            of_machine = model.Machine(node, model.Link(latency, gigabits * 1e9 / 8, latency / 2), 1)
            for title, algorithm, its in (("slices at the end", "slices", work.at_the_end()), ("ring, overlapped", "ring", work.gathered(BUCKET))):
                tutorial[f"{gigabits} Gbit/s, {title}"] = [model.efficiency(its, algorithm, count, of_machine) for count in DEVICES]
        rows = [[name, *(f"{100 * value:.0f}" for value in values)] for name, values in tutorial.items()]
    sources = [f"- {key.replace('_', ' ')}: {text}." for key, text in published["sources"].items()]
    page = [
        "# Scaling: a model",
        "",
        "Written by `tests/benchmarks/run scaling` from [processes.json](processes.json) and published figures; nothing is measured for this page. "
        "The model (`tests/benchmarks/scaling/model.py`) has as inputs the time of a step's computation, the buckets of the gradient and the times "
        "when they are ready, and the latency and the rate of the links. One channel exchanges the buckets one after the other; a step ends when "
        "computation and channel have.",
        "",
        f"[processes.md](processes.md) was measured on {results['machine']['date']}, commit {results['machine']['commit']}.",
        "",
        "## Compared with the steps measured here",
        "",
        "Calibrated: the step of each process alone, all at the same time, and the latency and rate of the link from exchanges of two sizes between two "
        "processes. Not calibrated: any step with an exchange. Nothing is fitted.",
        "",
        *machine.table(["", "calibrated by", "measured, ms", "predicted, ms", "error"], measured),
        "",
        f"The error is {100 * statistics.mean(errors):.0f} % in the mean and {100 * max(errors):.0f} % at most." if errors else "",
        "",
        "## Compared with Horovod's published scaling",
        "",
        f"{devices} Pascal GPUs, {published['devices_per_node']} per server, {published['network_bits_per_second'] / 1e9:g} Gbit/s. Efficiency: images per second "
        f"over {devices} times those of one GPU; in brackets the error in percentage points. The model has a ring of all GPUs at the network's nominal rate, "
        f"{published['batch']} images per GPU, a backward pass that takes {published['backward_over_forward']} times the forward pass and is divided between layers by their multiply-adds, "
        f"and exchanges of what is ready together, at most {published['fusion_bytes'] >> 20} MB.",
        "",
        *machine.table(
            ["", "MB", "images/s of one GPU", "published", "model, nothing fitted", f"variation {variation:.3f}", "without overlap"], compared
        ),
        "",
        f"One number is fitted in the last column but one: the variation of the computation between GPUs, by {' and '.join(fit_by)} alone. It stands for all that is "
        "not in the model and grows with the number of devices: stragglers, the negotiation of each cycle, other users of the network. "
        "The model is optimistic where the gradient is large: a ring does not reach the nominal rate of its network.",
        "",
        "![Efficiency by the number of devices](scaling.svg)",
        "",
        "The inputs:",
        "",
        *sources,
        "",
    ]
    if rows:
        page += [
            "## The tutorial's network from 1 to 512 devices",
            "",
            "Predicted efficiency in percent: one process per host with the computation of one process of two hosts here (256 samples, one thread), the latency "
            "measured between namespaces, the rate of the network as given, without variation. Slices at the end are what `MpiConcatMean` does between hosts.",
            "",
            *machine.table(["devices", *map(str, DEVICES)], rows),
            "",
        ]
    return "\n".join(page), picture(curves, points)


def main():
    parser = argparse.ArgumentParser(prog="run scaling", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--no-save", action="store_true", help="print the page, but write no file")
    options = parser.parse_args()
    results = json.loads((machine.MEASUREMENTS / "processes.json").read_text())
    page, drawn = pages(results, json.loads((HERE / "horovod.json").read_text()))
    print(page)
    if not options.no_save:
        (machine.MEASUREMENTS / "scaling.md").write_text(page)
        (machine.MEASUREMENTS / "scaling.svg").write_text(drawn)


if __name__ == "__main__":
    sys.exit(main())
