#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Usage: predict.sh PREDICT SOURCE CIFAR10_TRAIN CIFAR10_EVAL SAMPLE. Checks that the example predict names the same class for an image as
# the evaluation, has at most 40 lines of code, and reports missing arguments in one message.
. "$(dirname "${BASH_SOURCE[0]}")/support.sh" "$@"
source_file=$2
train=$3
evaluate=$4
sample=$5

"$train" --batch-size 32 --max-steps 60 --ema-decay 0.5 --summary-every 0 --log-every 0 --train-dir "$work/run" >"$work/train.out" 2>&1 ||
    fail "the training failed: $(tail -n 1 "$work/train.out")"
checkpoint=$work/run/model-60.safetensors
mkdir "$work/images"
(cd "$work/images" && cmake -E tar xf "$sample")  # CMake's tar needs no program xz

# The evaluation orders images by the names of the classes, then by the names of the files.
"$evaluate" --checkpoint "$checkpoint" --predictions "$work/predictions.csv" >/dev/null || fail "the evaluation failed"
cd "$work/images"
names=(airplane automobile bird cat deer dog frog horse ship truck)
find test -name '*.jpg' | sort >"$work/files"
awk -F, 'NR > 1 { print $3 }' "$work/predictions.csv" | while read -r class; do echo "${names[$class]}"; done >"$work/expected"
[ "$(sort -u "$work/expected" | wc -l)" -gt 1 ] || fail "the trained network tells nothing apart"
trains "$checkpoint" $(awk 'NR % 20 == 1' "$work/files")
sed -nE 's/^test.*\.jpg: ([a-z]+) \([0-9]+ %\)$/\1/p' "$work/output" >"$work/found"
[ "$(wc -l <"$work/found")" = 50 ] || fail "not a line for each image"
awk 'NR % 20 == 1' "$work/expected" | diff - "$work/found" >/dev/null || fail "other classes than the evaluation's"

image=$(head -n 1 "$work/files")
refuses 'usage: predict CHECKPOINT.safetensors IMAGE...'
refuses 'usage: predict' "$checkpoint"
refuses '/no/such/file does not exist' /no/such/file "$image"
refuses 'nothing.jpg does not exist' "$checkpoint" nothing.jpg
refuses ' is not a readable JPEG image: ' "$checkpoint" "$checkpoint"
head -c 300 "$image" >"$work/cut.jpg"
refuses "$work/cut.jpg is not a readable JPEG image: " "$checkpoint" "$work/cut.jpg"
head -c 3000 "$checkpoint" >"$work/cut.safetensors"
refuses "$work/cut.safetensors is truncated" "$work/cut.safetensors" "$image"
refuses "$image" "$image" "$image"

status=0
"$program" "$checkpoint" "$image" >/dev/full 2>"$work/errors" || status=$?
[ "$status" = 1 ] && grep -q '^predict: standard output could not be written$' "$work/errors" || fail "a full standard output: exit status $status"

lines=$(grep -cEv '^ *(//.*)?$' "$source_file")
[ "$lines" -le 40 ] || fail "$source_file has $lines lines of code"
echo "$checks runs; $lines lines of code"
