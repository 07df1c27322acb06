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
# A file that PyTorch saved says no names: a class is its number.
as_pytorch_saves "$checkpoint" "$work/saved.safetensors"
trains "$work/saved.safetensors" "$image"
grep -Eq "^$image: [0-9] \([0-9]+ %\)$" "$work/output" || fail "not a number for a class without a name"
# Other classes, in the order of the bytes of their names: 1, 10, 2 and on.
mkdir "$work/numbered"
for split in train test; do
    mkdir "$work/numbered/$split"
    for i in $(seq 0 9); do cp -r "$split/${names[$i]}" "$work/numbered/$split/$((i + 1))"; done
done
"$train" --batch-size 32 --max-steps 20 --ema-decay 0.5 --summary-every 0 --log-every 0 --data-dir "$work/numbered" \
    --train-dir "$work/of_numbered" >"$work/train.out" 2>&1 || fail "the second training failed: $(tail -n 1 "$work/train.out")"
numbered=$work/of_numbered/model-20.safetensors
"$evaluate" --checkpoint "$numbered" --data-dir "$work/numbered" --predictions "$work/numbered.csv" >/dev/null || fail "the evaluation failed"
cd "$work/numbered"
in_order=(1 10 2 3 4 5 6 7 8 9)
find test -name '*.jpg' | LC_ALL=C sort | awk 'NR % 20 == 1' >"$work/numbered_files"
awk -F, 'NR > 1 && (NR - 1) % 20 == 1 { print $3 }' "$work/numbered.csv" | while read -r class; do echo "${in_order[$class]}"; done >"$work/expected"
trains "$numbered" $(cat "$work/numbered_files")
sed -nE 's/^test.*\.jpg: ([0-9]+) \([0-9]+ %\)$/\1/p' "$work/output" | diff - "$work/expected" >/dev/null || fail "not the names of its data"
cd "$work/images"
"$evaluate" --checkpoint "$checkpoint" --data-dir "$work/numbered" >"$work/output" 2>&1 && fail "data of other classes were evaluated"
grep -q 'was trained with other classes than those of .*: classes\[0\] was airplane and is 1$' "$work/output" || fail "the first other class is not named"
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
