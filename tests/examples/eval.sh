#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Usage: eval.sh CIFAR10_EVAL CIFAR10_TRAIN SAMPLE. Checks the precision of a trained checkpoint in the format of the tutorial, with each image
# counted once or as in the tutorial; predictions and confusions that add up to it; a file for TensorBoard; waiting for a newer
# checkpoint; and an error message for each missing file.
. "$(dirname "${BASH_SOURCE[0]}")/support.sh" "$@"
. "$(dirname "${BASH_SOURCE[0]}")/small_data.sh"
train=$2
cleanup_evaluator() { [ -z "${evaluator:-}" ] || kill -KILL "$evaluator" 2>/dev/null || true; }
trap 'cleanup_evaluator; chmod -R u+rwx "$work"; rm -rf "$work"' EXIT

small="--batch-size 16 --checkpoint-every 10 --summary-every 0 --log-every 0 --threads-per-device 1"
"$train" $small --max-steps 20 --train-dir "$work/run" >"$work/train.out" 2>&1 || fail "the training failed: $(tail -n 1 "$work/train.out")"
[ -f "$work/run/model-10.safetensors" ] && [ -f "$work/run/model-20.safetensors" ] || fail "no checkpoints of steps 10 and 20"
precision() { sed -nE 's/^.*precision @ 1 = ([01]\.[0-9]{3})$/\1/p' "$work/output"; }
ratio() { awk -v a="$1" -v b="$2" 'BEGIN { printf "%.3f", a / b }'; }

# The newest checkpoint, in the line of the tutorial, with the same precision as the evaluation by the training.
trains --train-dir "$work/run" --run-once
head -n 1 "$work/output" | grep -Eq '^[0-9]{4}-[0-9]{2}-[0-9]{2} [0-9]{2}:[0-9]{2}:[0-9]{2}\.[0-9]{6}: precision @ 1 = [01]\.[0-9]{3}$' ||
    fail "not the tutorial's line"
[ "$(wc -l <"$work/output")" = 2 ] || fail "not two lines"
tail -n 1 "$work/output" | grep -q '^step 20: [0-9]* of 1000 images correct, moving averages of .*/model-20.safetensors, data ' ||
    fail "the second line does not say what was evaluated"
averages=$(precision)
grep -q "^test accuracy with moving averages = $averages (1000 images)$" "$work/train.out" || fail "the training found another precision"
trains --checkpoint-dir "$work/run" --run-once --no-averages
grep -q "^test accuracy = $(precision) (1000 images)$" "$work/train.out" || fail "the training found another precision of its parameters"
grep -q 'images correct, trained parameters of ' "$work/output" || fail "no message says which parameters were evaluated"
trains --checkpoint "$work/run/model-10.safetensors"
grep -q '^step 10: ' "$work/output" || fail "--checkpoint is not evaluated"

# Predictions and confusions add up to the precision; the tutorial counts the first images of a full last batch again.
trains --train-dir "$work/run" --run-once --predictions "$work/predictions.csv" --confusion
[ "$(head -n 1 "$work/predictions.csv")" = "index,label,prediction,logit0,logit1,logit2,logit3,logit4,logit5,logit6,logit7,logit8,logit9" ] ||
    fail "not the header of the predictions"
awk -F, 'NR > 1 { if (NF != 13 || $1 != NR - 2) exit 1; best = 0; for (c = 1; c < 10; ++c) if ($(4 + c) > $(4 + best)) best = c
    if ($3 != best) exit 1 } END { exit NR != 1001 }' "$work/predictions.csv" || fail "the predictions are not the largest logits in order"
right=$(awk -F, 'NR > 1 && $2 == $3' "$work/predictions.csv" | wc -l)
[ "$(ratio "$right" 1000)" = "$averages" ] || fail "the predictions' precision is another"
grep -q "^step 20: $right of 1000 images" "$work/output" || fail "the correct images are not counted right"
grep -A 10 '^label ' "$work/output" | awk -v right="$right" 'NR == 1 { if (NF != 14) exit 1 }
    NR > 1 { for (c = 0; c < 10; ++c) all += $(2 + c); on += $NR; row = 0 } END { exit !(NR == 11 && all == 1000 && on == right) }' ||
    fail "the confusions do not add up"
trains --train-dir "$work/run" --run-once --tutorial-count
twice=$(awk -F, 'NR > 1 && NR <= 25 && $2 == $3' "$work/predictions.csv" | wc -l)
grep -q "^step 20: $((right + twice)) of 1024 images" "$work/output" || fail "not the tutorial's count"
[ "$(precision)" = "$(ratio $((right + twice)) 1024)" ] || fail "not the tutorial's precision"

# A file that PyTorch saved has only parameters, which are used even without --no-averages.
as_pytorch_saves "$work/run/model-20.safetensors" "$work/saved.safetensors"
trains --checkpoint "$work/saved.safetensors"
grep -q "^test accuracy = $(precision) (1000 images)$" "$work/train.out" || fail "other parameters than the file's"
grep -q 'images correct, trained parameters of ' "$work/output" || fail "no message that these are no averages"

# The training images; JSON, with nothing else on standard output; TensorBoard's file.
trains --train-dir "$work/run" --run-once --eval-data train
grep -q ' of 5000 images correct' "$work/output" || fail "not the training images"
trains --train-dir "$work/run" --run-once --json --confusion --eval-dir "$work/events"
python3 - "$work/output" "$right" <<'END' || fail "not the JSON object"
import json, sys
lines = [json.loads(line) for line in open(sys.argv[1])]
(found,) = lines
right = int(sys.argv[2])
assert found["step"] == 20 and found["correct"] == right and found["images"] == 1000
assert abs(found["precision"] - right / 1000) < 1e-6 and found["weights"] == "moving averages"
assert sum(map(sum, found["confusion"])) == 1000 and sum(found["confusion"][c][c] for c in range(10)) == right
END
grep -qa 'Precision @ 1' "$work/events"/events.out.tfevents.* || fail "no scalar for TensorBoard"

# On a terminal the result overwrites the progress.
if SHELL=/bin/sh script -qec true /dev/null >/dev/null 2>&1 </dev/null; then
    SHELL=/bin/sh script -qec "'$program' --train-dir '$work/run' --run-once" "$work/terminal" >/dev/null </dev/null || fail "the evaluation on a terminal failed"
    grep -qa ' of 1000 images, [0-9]*:[0-9][0-9]:[0-9][0-9] left' "$work/terminal" || fail "no progress on a terminal"
    tr '\r' '\n' <"$work/terminal" | grep -qaE '^(.\[K)?[0-9]{4}-[0-9-]+ [0-9:.]+: precision @ 1 = ' || fail "the result does not begin a line of the terminal"
else
    echo "not tested, for script(1) is missing or makes none here: a terminal"
fi

# Without --run-once: waits for checkpoints, evaluates each once, and ends on SIGTERM. This test waits for lines, not for times.
mkdir "$work/later"
"$program" --train-dir "$work/later" --interval 1 --eval-dir "$work/said" >"$work/output" 2>"$work/errors" &
evaluator=$!
wait_for() {
    local try
    for try in $(seq 600); do
        if [ "$(grep -c "$1" "$work/output")" -ge "${2:-1}" ]; then return 0; fi
        kill -0 "$evaluator" 2>/dev/null || fail "the evaluator ended before it said '$1'"
        sleep 0.1
    done
    fail "the evaluator never said '$1'"
}
wait_for "the folder $work/later has no checkpoint yet"
cp "$work/run/model-10.safetensors" "$work/later/"
wait_for '^step 10: '
wait_for '^no checkpoint newer than step 10 in '
cp "$work/run/model-20.safetensors" "$work/later/new"
mv "$work/later/new" "$work/later/model-20.safetensors"
wait_for '^step 20: '
head -c 5000 "$work/run/model-20.safetensors" >"$work/later/new"
mv "$work/later/new" "$work/later/model-30.safetensors"
wait_for "^warning: $work/later/model-30.safetensors is truncated"
# A training that reaches step 20 again: TensorBoard must drop the earlier events of that step.
cp "$work/run/model-20.safetensors" "$work/later/new"
mv "$work/later/new" "$work/later/model-20.safetensors"
wait_for '^step 20: ' 2
kill -TERM "$evaluator"
status=0
wait "$evaluator" || status=$?
evaluator=
[ "$status" = 0 ] || fail "exit status $status after SIGTERM"
[ ! -s "$work/errors" ] || fail "something on standard error"
[ "$(grep -c '^step ' "$work/output")" = 3 ] || fail "a checkpoint was not evaluated once"
python3 -c 'import pathlib, sys
(events,) = pathlib.Path(sys.argv[1]).iterdir()
assert events.read_bytes().count(b"\x3a\x02\x08\x01") == 2' "$work/said" || fail "not one START of a session for each beginning"
[ "$(grep -c '^warning: ' "$work/output")" = 1 ] || fail "the warning is not printed once"
checks=$((checks + 1))

# A damaged newest checkpoint is skipped with a warning; without a valid one there is no precision.
trains --train-dir "$work/later" --run-once
grep -q '^step 20: ' "$work/output" && grep -q '^warning: .*model-30.safetensors is truncated' "$work/output" || fail "the damaged file is not passed over"
refuses "$work/later/model-30.safetensors is truncated" --checkpoint "$work/later/model-30.safetensors"
rm "$work/later/model-10.safetensors" "$work/later/model-20.safetensors"
run --train-dir "$work/later" --run-once
[ "$status" = 1 ] && grep -q "^cifar10_eval: the folder $work/later has no valid checkpoint$" "$work/errors" || fail "a damaged file alone"
mkdir "$work/none"
refuses "the folder $work/none has no checkpoint" --train-dir "$work/none" --run-once
[ "$status" = 1 ] || fail "exit status $status without a checkpoint"
refuses "the folder $work/nowhere does not exist" --train-dir "$work/nowhere" --run-once

# ResNet, on a few images: after one step it predicts one class for all.
small_data "$work/data" "$3"
"$train" --model resnet --batch-size 8 --max-steps 1 --summary-every 0 --log-every 0 --data-dir "$work/data" --train-dir "$work/resnet" \
    >"$work/train.out" 2>&1 || fail "the training failed: $(tail -n 1 "$work/train.out")"
trains --data-dir "$work/data" --train-dir "$work/resnet" --run-once --model resnet
grep -q "^test accuracy with moving averages = $(precision) (16 images)$" "$work/train.out" || fail "the training found another precision of ResNet"
refuses 'is a checkpoint of another network: ' --train-dir "$work/resnet" --run-once

# Another network, a training without averages, one that diverged, places that cannot be written.
refuses 'is a checkpoint of another network: ' --train-dir "$work/run" --run-once --model resnet
"$train" $small --max-steps 1 --ema-decay 0 --train-dir "$work/plain" >"$work/train.out" 2>&1 || fail "the training failed"
refuses 'has no moving averages; --no-averages runs the trained parameters' --train-dir "$work/plain" --run-once
trains --train-dir "$work/plain" --run-once --no-averages
refuses "$work/no/folder/predictions.csv cannot be written: No such file or directory" --train-dir "$work/run" --run-once \
    --predictions "$work/no/folder/predictions.csv"
mkfifo "$work/pipe"
refuses "$work/pipe cannot be written: it exists and is not a regular file" --train-dir "$work/run" --run-once --predictions "$work/pipe"
refuses ' cannot be created: ' --train-dir "$work/run" --run-once --eval-dir /proc/no/such/folder
refuses "--eval-dir is the checkpoint's folder: " --train-dir "$work/run" --run-once --eval-dir "$work/../$(basename "$work")/run"
refuses "--eval-dir is the checkpoint's folder: " --checkpoint "$work/run/model-10.safetensors" --eval-dir "$work/run/"
refuses "--eval-dir is the checkpoint's folder: " --train-dir "$work/unborn" --eval-dir "$work/unborn/"
[ ! -e "$work/unborn" ] || fail "a folder was made for a training"
refuses '/no/such/data does not exist' --train-dir "$work/run" --run-once --data-dir /no/such/data
status=0
"$program" --train-dir "$work/run" --run-once >/dev/full 2>"$work/errors" || status=$?
[ "$status" = 1 ] && grep -q 'could not be written to standard output: No space left on device' "$work/errors" || fail "a full standard output"

# Flags.
refuses 'or --checkpoint, one of them, is required' --run-once
refuses 'only one of them' --train-dir "$work/run" --checkpoint "$work/run/model-10.safetensors"
refuses '--model must be tutorial or resnet, not vgg' --train-dir "$work/run" --model vgg
refuses '--eval-data must be test or train, not validation' --train-dir "$work/run" --eval-data validation
for value in 0 -1 1.5 often; do refuses "--interval: $value is not a whole number from 1 to 1000000" --interval "$value"; done
refuses '--threads: -1 is not a whole number from 0 to 4096' --threads -1
refuses '--train-dir: the path is empty' --train-dir ''
refuses '--predictions: the path is empty' --predictions ''
trains --help
for flag in --train-dir --checkpoint-dir --checkpoint --data-dir --eval-data --model --no-averages --run-once --interval --threads \
    --tutorial-count --predictions --confusion --eval-dir --json; do
    grep -q -- "$flag" "$work/output" || fail "--help does not name $flag"
done
echo "$checks runs"
