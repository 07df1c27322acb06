# SPDX-License-Identifier: Apache-2.0
"""The least time that a training step can take on a machine: its operations at the rate of a large matrix product, its bytes at
the rate of a large copy. The C++ programs count the operations and bytes of each part from the table of the network."""

import contextlib
import dataclasses
import re


def of_part(part, rates):
    """The longer of the two times of a part, in seconds."""
    return max(part["operations"] / rates["operations"], part["bytes"] / rates["bytes"])


def of_step(parts, rates):
    """`seconds`: the sum of the rooflines of the parts, for parts that run one after another; `whole`: the longer of the two times
    of all parts together, a lower bound for any order of the parts."""
    operations, moved = sum(part["operations"] for part in parts), sum(part["bytes"] for part in parts)
    return {
        "operations": operations,
        "bytes": moved,
        "seconds": sum(of_part(part, rates) for part in parts),
        "whole": of_part({"operations": operations, "bytes": moved}, rates),
    }


def name_of(part):
    return " ".join(word for word in (part["name"], part["what"] if not part["name"] else "", part["pass"]) if word)


# Rates that the time of a launch is predicted with, per second: bytes of a large copy, and operations of a large product. They are
# what published measurements reach, not the numbers of the data sheets; an H100 has the H200's multiprocessors and slower memory.
CARDS = {
    "H200": {"bytes": 4.3e12, "float": 60e12, "tf32": 400e12, "bfloat16": 790e12, "half": 790e12},
    "H100": {"bytes": 3.0e12, "float": 60e12, "tf32": 400e12, "bfloat16": 790e12, "half": 790e12},
}
# Of a step whose plan pads the channels of the images for the tensor cores: the name of its precision, and a part of that of its kernel.
PADDED, PADDING = "-padded", "PadChannels"
# The row of all kernels of libraries.
LIBRARIES = "cuDNN and cuBLASLt"


@dataclasses.dataclass(frozen=True)
class Floors:
    """What a kernel of a graph takes at least, in seconds: from its begin to its end, as a recording of kernels has it, and from there
    to the begin of the next one."""

    kernel: float
    gap: float
    source: str

    def text(self):
        return f"{1e6 * self.kernel:.2f} us per kernel and {1e6 * self.gap:.2f} us to the next one, {self.source}"


# Of a card that was not measured: about 2 us per empty kernel that is queued on a stream, and 1.3 us from one to the next in a graph, which
# are published of an H100. Their sum is on the safe side: whatever a kernel of a graph takes of the 1.3 us is counted twice.
PUBLISHED = Floors(2.0e-6, 1.3e-6, 'as published of an H100 (Hazy Research, "Look Ma, No Bubbles!", 2025)')


def floors_of(chain):
    """The floors of this card, of what bench_step says of a chain of empty kernels in a graph: the `seconds` from one to the next, and
    `kernel`, the recorded time of one, or None where nothing could be recorded."""
    whole, kernel = chain["seconds"], chain.get("kernel")
    if not whole > 0:
        raise ValueError(f"a chain of empty kernels takes {whole} s per kernel")
    if not kernel:
        kernel = whole * PUBLISHED.kernel / (PUBLISHED.kernel + PUBLISHED.gap)
        return Floors(kernel, whole - kernel, "whose sum was measured on this card and whose ratio is as published of an H100")
    # A recording delays kernels, so that one may be longer than the time from one to the next without it.
    return Floors(kernel, max(0.0, whole - kernel), "measured on this card")


def bound_of_launch(launch, precision, card):
    """The longer of the times of a launch's bytes, each read and written once, and of its operations, in seconds."""
    rates = CARDS[card]
    return max((launch["read"] + launch["written"]) / rates["bytes"], launch["operations"] / rates[precision.removesuffix(PADDED)])


def predicted_of_launch(launch, precision, card, floors=PUBLISHED):
    """Its bound or the shortest time of a kernel, and the gap to the next one."""
    return max(bound_of_launch(launch, precision, card), floors.kernel) + floors.gap


def predicted_of_step(launches, precision, card, floors=PUBLISHED):
    """What is predicted of a step: its launches one after another, each at its bound or at the floor of a kernel."""
    return sum(predicted_of_launch(launch, precision, card, floors) for launch in launches)


def share_of_bounds(launches, precision, card, seconds, floors=PUBLISHED):
    """The fraction of its bound that each launch reaches in a step that takes so long; None if that is less than is predicted."""
    if seconds < predicted_of_step(launches, precision, card, floors):
        return None
    low, high = 1e-6, 1.0
    for _ in range(60):
        middle = (low + high) / 2
        took = sum(max(bound_of_launch(launch, precision, card) / middle, floors.kernel) + floors.gap for launch in launches)
        low, high = (middle, high) if took > seconds else (low, middle)
    return high


@contextlib.contextmanager
def card(name, rates):
    """Inside this block there is another card, with rates that were measured."""
    CARDS[name] = rates
    try:
        yield
    finally:
        del CARDS[name]


def card_of(gpu):
    """The card of a GPU's name, "NVIDIA H200": None if there is no prediction for it."""
    return next((card for card in CARDS if card in gpu), None)


def predicted_step(steps, precision, batch, kernels):
    """The step of gpu-predicted.json that ran, by the kernels that were recorded, or None."""
    pads = any(PADDING in kernel["name"] for kernel in kernels)
    of = {(step["precision"], step["batch"]): step for step in steps}
    return of.get((precision + PADDED, batch) if pads else (precision, batch))


def beside_prediction(launches, precision, card, kernels, floors=PUBLISHED):
    """What a card's kernels took beside their bounds: `launches` are a step's of gpu-predicted.json, `kernels` those that were
    recorded on the card, with `name`, `count` and `seconds` per step. A row has the seconds of all launches of a name; the
    kernels of libraries have other names and are one row. Returns rows with `name`, `count`, `bound`, `predicted`, and
    `measured_count`, `measured` or None for a kernel that did not run; and a last row for the sum."""

    def empty(name):
        return {"name": name, "count": 0, "bound": 0.0, "predicted": 0.0, "measured_count": 0, "measured": None}

    libraries = LIBRARIES
    rows = {}
    for launch in launches:
        name = libraries if launch["library"] else launch["name"]
        row = rows.setdefault(name, empty(name))
        row["count"] += 1
        row["bound"] += bound_of_launch(launch, precision, card)
        row["predicted"] += predicted_of_launch(launch, precision, card, floors)
    for kernel in kernels:
        name = kernel_name(kernel["name"])
        if name not in rows and not is_ours(kernel["name"]):
            name = libraries
        row = rows.setdefault(name, empty(name))
        row["measured_count"] += kernel["count"]
        row["measured"] = (row["measured"] or 0.0) + kernel["seconds"]
    found = sorted(rows.values(), key=lambda row: -(row["measured"] or 0.0))
    total = empty("all")
    for row in found:
        for key in ("count", "bound", "predicted", "measured_count"):
            total[key] += row[key]
        total["measured"] = (total["measured"] or 0.0) + (row["measured"] or 0.0)
    return [*found, total]


def prediction_lines(rows):
    """beside_prediction() as text: microseconds of all launches of a name."""
    lines = [f"{'us':>9} {'bound':>9} {'predicted':>9} {'launches':>8} {'predicted':>9}"]
    for row in rows:
        took = " " * 9 if row["measured"] is None else f"{1e6 * row['measured']:9.1f}"
        counts = f"{row['measured_count']:8g} {row['count']:9g}"
        lines.append(f"{took} {1e6 * row['bound']:9.1f} {1e6 * row['predicted']:9.1f} {counts}  {short_name(row['name'])}")
    return lines


def is_ours(kernel):
    return "cupola::" in kernel


def short_name(kernel):
    """kernel_name(), and not too long for a table."""
    name = kernel_name(kernel)
    return name if len(name) <= 110 else name[:107] + "..."


def kernel_name(kernel):
    """The name of a kernel without its arguments and without the prefix that all of our kernels have."""
    name = re.sub(r"\bcupola::v\w+::|\bimpl::|\bcutlass::|\(anonymous namespace\)::|^void ", "", kernel)
    depth = 0
    if name.endswith(")"):
        for place in range(len(name) - 1, -1, -1):
            depth += {")": 1, "(": -1}.get(name[place], 0)
            if depth == 0:
                name = name[:place]
                break
    return name


def kernel_lines(found):
    """The kernels of a captured step, ordered by time, and the time in which no kernel ran."""
    lines = [f"{1e6 * found['seconds']:.1f} us/step, in {1e6 * (found['seconds'] - found['busy']):.1f} us of it nothing runs"]
    for kernel in sorted(found["kernels"], key=lambda kernel: -kernel["seconds"]):
        share = kernel["seconds"] / max(found["seconds"], 1e-12)
        lines.append(f"{1e6 * kernel['seconds']:9.1f} us {share:6.1%} {kernel['count']:5g} x  {short_name(kernel['name'])}")
    return lines


def lines_of(profile, rates):
    """A table of the parts of a step: microseconds, the bound, and the fraction of the roofline that is reached."""
    lines = [f"{'part':36} {'us':>9} {'share':>6} {'bound us':>9} {'of bound':>8}  bound by"]

    def row(name, seconds, roofline, bound):
        reached = f"{roofline / seconds:8.2f}" if roofline > 0 and seconds > 0 else " " * 8
        known = f"{1e6 * roofline:9.1f}" if roofline > 0 else " " * 9
        lines.append(f"{name:36} {1e6 * seconds:9.1f} {seconds / profile['seconds']:6.1%} {known} {reached}  {bound}".rstrip())

    for part in profile["parts"]:
        bound = (
            "operations"
            if part["operations"] / rates["operations"] > part["bytes"] / rates["bytes"]
            else "bytes" if part["bytes"] else ""
        )
        row(name_of(part), part["seconds"], of_part(part, rates), bound)
    row("the rest", profile["rest"], 0, "")
    roofline = of_step(profile["parts"], rates)
    row("the step, uncaptured", profile["seconds"], roofline["seconds"], "")
    return lines
