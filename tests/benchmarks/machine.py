# SPDX-License-Identifier: Apache-2.0
"""The conditions of a measurement: the processor, the versions, the commit, and how much of the machine other processes used."""

import datetime
import json
import os
import pathlib
import platform
import re
import statistics
import subprocess
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
PEERS = ROOT / ".deps" / "peers"
MEASUREMENTS = ROOT / "docs" / "measurements"


def output_of(*command):
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return ""


def describe():
    info = pathlib.Path("/proc/cpuinfo").read_text()

    def field(name):
        found = re.search(rf"^{name}\s*: (.*)$", info, re.M)
        return found[1].strip() if found else "unknown"

    flags = set(field("flags").split())
    memory = int(re.search(r"MemTotal:\s+(\d+)", pathlib.Path("/proc/meminfo").read_text())[1]) / 2**20
    dirty = output_of("git", "-C", str(ROOT), "status", "--porcelain", "--", "include", "tests/benchmarks")
    return {
        "date": datetime.date.today().isoformat(),
        "commit": (output_of("git", "-C", str(ROOT), "rev-parse", "--short=12", "--verify", "-q", "HEAD") or "none")
        + (" with changes" if dirty else ""),
        "processor": f"{field('model name')}, family {field('cpu family')} model {field('model')}",
        "instructions": [name for name in ("avx2", "avx512f", "avx512_bf16", "amx_tile") if name in flags],
        "cores": len(os.sched_getaffinity(0)),
        "memory_gib": round(memory, 1),
        "system": " ".join(
            filter(
                None,
                (re.sub(r'.*PRETTY_NAME="([^"]*)".*', r"\1", pathlib.Path("/etc/os-release").read_text(), flags=re.S), platform.machine()),
            )
        ),
        "compilers": [line.splitlines()[0] for line in map(output_of, ("g++", "clang++-16"), ("--version",) * 2) if line],
    }


def lines(machine):
    """The same as text for a page."""
    return [
        f"- processor: {machine['processor']}; {machine['cores']} core{'s' * (machine['cores'] != 1)}; {', '.join(machine['instructions'])}; "
        f"{machine['memory_gib']} GiB of memory",
        f"- system: {machine['system']}; {'; '.join(machine['compilers'])}",
        f"- measured on {machine['date']}, commit {machine['commit']}",
    ]


def busy_seconds():
    """The CPU seconds used on the whole machine since its start, and those that its host withheld."""
    values = [int(v) for v in pathlib.Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]]
    ticks = os.sysconf("SC_CLK_TCK")
    user, nice, system, _idle, _wait, irq, softirq, steal = values
    return (user + nice + system + irq + softirq) / ticks, steal / ticks


def wait_until_quiet(share, patience, seconds=1.0):
    """Waits until the machine has been less busy than `share` for `seconds` seconds, for at most `patience` seconds."""
    end = time.monotonic() + patience
    while time.monotonic() < end:
        busy, start = busy_seconds()[0], time.monotonic()
        time.sleep(seconds)
        if (busy_seconds()[0] - busy) / (time.monotonic() - start) / os.cpu_count() < share:
            return


def process_seconds(pid):
    """The CPU seconds of a process with all its threads."""
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def peak_bytes(pid):
    """The peak memory of a process."""
    return 1024 * int(re.search(r"VmHWM:\s+(\d+)", pathlib.Path(f"/proc/{pid}/status").read_text())[1])


def middle(samples):
    """The medians of runs of a process, each (elapsed seconds, CPU seconds, peak MB), and the range of the elapsed seconds."""
    clock, processor, memory = zip(*samples)
    return {
        "seconds": statistics.median(clock),
        "processor_seconds": statistics.median(processor),
        "megabytes": statistics.median(memory),
        "seconds_range": [min(clock), max(clock)],
    }


def table(header, rows):
    """A Markdown table with columns that are aligned in the source."""
    rows = [[str(cell) for cell in row] for row in [header, *rows]]
    widths = [max(len(row[i]) for row in rows) for i in range(len(header))]
    text = [" | ".join(cell.ljust(width) for cell, width in zip(row, widths)) for row in rows]
    text.insert(1, " | ".join("-" * width for width in widths))
    return [f"| {line} |" for line in text]


def bar(row, measured, least=None, most=None, digits=2, unit=""):
    """A row of the table of limits: (row, limit, measured, met). `measured` is a number, a spread of numbers or None. A row without a
    limit explains the one above it."""
    asked = f">= {least:,}{unit}" if least is not None else f"<= {most:,}{unit}" if most is not None else ""
    if measured is None:
        return [row, asked, "not measured", ""]
    spread = measured if isinstance(measured, dict) else None
    value = spread["median"] if spread else measured
    met = value >= least if least is not None else value <= most if most is not None else None
    words = f"{value:,.{digits}f}{unit}"
    if spread:
        words += f" ({spread['least']:,.{digits}f} to {spread['most']:,.{digits}f})"
    return [row, asked, words, {True: "yes", False: "no", None: ""}[met]]


def publish(options, name, page, figures):
    """Prints a page and, unless options.no_save, writes it to docs/measurements/<name>.md and its figures to NAME.json."""
    print(page)
    if not options.no_save:
        MEASUREMENTS.mkdir(parents=True, exist_ok=True)
        (MEASUREMENTS / f"{name}.md").write_text(page)
        (MEASUREMENTS / f"{name}.json").write_text(json.dumps(figures, indent=1) + "\n")
