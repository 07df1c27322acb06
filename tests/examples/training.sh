#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Usage: training.sh CIFAR10_TRAIN SAMPLE. Checks the output of a successful run: lines that the parsers of TensorFlow's tutorial accept,
# consistent figures, the accuracy at the end; and the same losses for any number of devices and workers.
. "$(dirname "${BASH_SOURCE[0]}")/support.sh" "$@"
. "$(dirname "${BASH_SOURCE[0]}")/small_data.sh"

trains --num-replicas 2 --batch-size 32 --max-steps 25 --threads-per-device 1 --train-dir "$work/log"
line='^[0-9]{4}-[0-9]{2}-[0-9]{2} [0-9]{2}:[0-9]{2}:[0-9]{2}\.[0-9]{6}: step [0-9]+, loss = [0-9]+\.[0-9]{2} \([0-9]+\.[0-9] examples/sec; [0-9]+\.[0-9]{3} sec/batch\)$'
grep ': step ' "$work/output" >"$work/lines"
! grep -Ev "$line" "$work/lines" || fail "a log line that the tutorial's parsers do not take"
[ "$(losses | cut -d ' ' -f 1 | xargs)" = "0 10 20" ] || fail "not a line every 10 steps"
[ "$(losses | head -n 1)" \> "0 4.59" ] && [ "$(losses | head -n 1)" \< "0 4.77" ] || fail "the loss does not begin near 4.68"
tail -n 2 "$work/output" | head -n 1 | grep -Eq '^test accuracy = [01]\.[0-9]{3} \(1000 images\)$' || fail "the last line but one is no accuracy"
tail -n 1 "$work/output" | grep -Eq '^test accuracy with moving averages = [01]\.[0-9]{3} \(1000 images\)$' || fail "the last line is no accuracy"
# All that is printed is in the folder too, with other times.
without_times() { sed -E 's/^[0-9-]{10} [^ ]*: //; s/\([^)]*sec[^)]*\)//; s/^summaries took .*//' "$1"; }
diff "$work/output" "$work/log/train.log" >"$work/difference" && fail "the times of two logs cannot be the same" || true
diff <(without_times "$work/output") <(without_times "$work/log/train.log") || fail "train.log has not what is printed"
diff <(losses) <(sed -nE 's|^.*: step ([0-9]+), loss = ([0-9.]+) .*|\1 \2|p' "$work/log/train.log") ||
    fail "train.log has other lines than standard output"
# examples/sec counts both replicas and sec/batch is a whole step: their product is the 64 images of a step.
sed -E 's|.*\(([0-9.]+) examples/sec; ([0-9.]+) sec/batch\)|\1 \2|' "$work/lines" |
    awk '{ off = $1 * $2 - 64; if (off < 0) off = -off; if (off > 0.0006 * $1 + 0.06 * $2) exit 1 }' ||
    fail "examples/sec and sec/batch do not fit together"

# A second run is appended to the log.
trains --num-replicas 2 --batch-size 32 --max-steps 31 --threads-per-device 1 --train-dir "$work/log" --resume
[ "$(grep -c ', loss = ' "$work/log/train.log")" = 4 ] || fail "the log of the second run is not appended"

small_data "$work/data" "$2"
trains --data-dir "$work/data" --max-steps 2 --batch-size 8 --log-every 0
[ -z "$(losses)" ] || fail "--log-every 0 prints a line"
# Processes of a launcher that train alone, without a policy for several: the first one says so, and trains.
through='env OMPI_COMM_WORLD_SIZE=2 OMPI_COMM_WORLD_RANK=0'
run --data-dir "$work/data" --max-steps 1 --batch-size 8
[ "$status" = 0 ] && [ "$(grep -c 'has started 2 processes (OMPI_COMM_WORLD_SIZE), and each of them trains alone' "$work/errors")" = 1 ] ||
    fail "no warning of two trainings of one process each"
through='env OMPI_COMM_WORLD_SIZE=2 OMPI_COMM_WORLD_RANK=1'
trains --data-dir "$work/data" --max-steps 1 --batch-size 8
through=
trains --data-dir "$work/data" --max-steps 5 --batch-size 8 --log-every 2
[ "$(losses | cut -d ' ' -f 1 | xargs)" = "0 2 4" ] || fail "not a line every 2 steps"

small="--data-dir $work/data --num-replicas 4 --batch-size 8 --max-steps 12 --log-every 1 --threads-per-device 1 --learning-rate 0.2"
outcome() { losses; tail -n 2 "$work/output"; }
trains $small --num-devices 1 --seed 5
outcome >"$work/expected"
[ "$(wc -l <"$work/expected")" = 14 ] || fail "not 12 lines"
for placement in '--num-devices 1' '--num-devices 2' '--num-devices 3 --prefetch-workers 0' '--num-devices 4 --prefetch-workers 1' \
    '--num-devices 2 --prefetch-workers 4'; do
    trains $small --seed 5 $placement
    outcome | diff "$work/expected" - || fail "other losses with $placement"
done
trains $small --seed 6
! outcome | diff -q "$work/expected" - >/dev/null || fail "the same losses with another seed"
echo "$checks runs"
