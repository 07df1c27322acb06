#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the scalars of an event folder as CSV to standard output: one row per step, one column per tag.

Usage: scalars_csv.py FOLDER [TAG...]. All tags if none is given. Needs the package tensorboard. Values that an interrupted run
wrote after the step from which it was resumed are left out, as in TensorBoard.
"""
import csv
import sys

from tensorboard.backend.event_processing import event_accumulator


def main():
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    folder, tags = sys.argv[1], sys.argv[2:]
    events = event_accumulator.EventAccumulator(folder, size_guidance={event_accumulator.SCALARS: 0}, purge_orphaned_data=True)
    events.Reload()
    present = events.Tags()["scalars"]
    for tag in tags:
        if tag not in present:
            sys.exit(f"scalars_csv.py: {folder} has no scalar {tag}; it has {', '.join(sorted(present)) or 'none'}")
    rows = {}
    for tag in tags or sorted(present):
        for event in events.Scalars(tag):
            rows.setdefault(event.step, {})[tag] = f"{event.value:.9g}"
    writer = csv.DictWriter(sys.stdout, ["step", *(tags or sorted(present))], lineterminator="\n")
    writer.writeheader()
    for step in sorted(rows):
        writer.writerow({"step": step, **rows[step]})


if __name__ == "__main__":
    main()
