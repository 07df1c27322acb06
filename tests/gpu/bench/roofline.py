# SPDX-License-Identifier: Apache-2.0
"""The least time that a training step can take on a machine: its operations at the rate of a large matrix product, its bytes at
the rate of a large copy. What a step has to do is counted by the C++ programs from the network's table, part by part."""

import re


def of_part(part, rates):
    """The longer of a part's two times, in seconds."""
    return max(part["operations"] / rates["operations"], part["bytes"] / rates["bytes"])


def of_step(parts, rates):
    """`seconds`: the sum of the parts' rooflines, for parts that run one after another; `whole`: the longer of the two times of
    all together, which is never more, and what no order of the parts goes below."""
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
    """A kernel's name without its arguments and without what all of ours begin with."""
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
    """The kernels of a captured step by their time, and how much of the step none ran."""
    lines = [f"{1e6 * found['seconds']:.1f} us/step, in {1e6 * (found['seconds'] - found['busy']):.1f} us of it nothing runs"]
    for kernel in sorted(found["kernels"], key=lambda kernel: -kernel["seconds"]):
        share = kernel["seconds"] / max(found["seconds"], 1e-12)
        lines.append(f"{1e6 * kernel['seconds']:9.1f} us {share:6.1%} {kernel['count']:5g} x  {short_name(kernel['name'])}")
    return lines


def lines_of(profile, rates):
    """A table of a step's parts: microseconds, what bounds each, and the fraction of its roofline that it reached."""
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
