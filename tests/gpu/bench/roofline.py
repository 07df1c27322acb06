# SPDX-License-Identifier: Apache-2.0
"""The least time that a training step can take on a machine: its operations at the rate of a large matrix product, its bytes at
the rate of a large copy. The C++ programs count the operations and bytes of each part from the table of the network."""

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


def short_name(kernel):
    """The name of a kernel without its arguments and without the prefix that all of our kernels have."""
    name = re.sub(r"\bcupola::v\w+::|\bimpl::|\bcutlass::|\(anonymous namespace\)::|^void ", "", kernel)
    depth = 0
    if name.endswith(")"):
        for place in range(len(name) - 1, -1, -1):
            depth += {")": 1, "(": -1}.get(name[place], 0)
            if depth == 0:
                name = name[:place]
                break
    return name if len(name) <= 110 else name[:107] + "..."


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
