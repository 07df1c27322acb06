#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Usage: training_flags.sh CIFAR10_TRAIN SAMPLE. Checks what --train-dir, --resume and the flags with a name reject, with a message and
# without a change in the folder: other settings, no checkpoint, a damaged one, a folder in use, a full disk. Also checks the lines of
# the log, as text and as JSON, on standard output and in the folder.
. "$(dirname "${BASH_SOURCE[0]}")/support.sh" "$@"
. "$(dirname "${BASH_SOURCE[0]}")/small_data.sh"
small_data "$work/data" "$2"
base=(--data-dir "$work/data" --batch-size 8 --threads-per-device 1)
folder=$work/run

# The message is on standard error only, and the folder is unchanged.
contents() { (cd "$folder" && find . -type f ! -name lock -exec sha256sum {} + | sort); }
refuses_to_go_on() {
    contents >"$work/before"
    refuses "$@"
    contents | diff "$work/before" - || fail "the folder was changed by: $*"
}

# Invalid names; each message lists the valid ones.
refuses '--model must be tutorial or resnet, not alexnet' --model alexnet
refuses '--precision must be float, bf16 or half, not double' --precision double
refuses '--convolution must be winograd or direct, not fft' --convolution fft
refuses '--log-loss must be mean, last or each, not all' --log-loss all
for flag in --ema-decay --clip-norm --clip-value; do
    refuses "$flag: -1 is not a number of at least 0" $flag -1
done
for flag in --clip-norm --clip-value; do
    for value in 1e-50 1e-40; do
        refuses "$flag: $value is too small a limit: it must be 0 (no limit) or at least 1.18e-38" $flag $value
    done
done
for flag in --checkpoint-every --summary-every --warm-up-steps; do
    refuses "$flag: -1 is not a whole number from 0 to 1000000000000" $flag -1
done
refuses '--keep-checkpoints: 0 is not a whole number from 1 to ' --keep-checkpoints 0
refuses '--accumulation: 0 is not a whole number from 1 to ' --accumulation 0

# Folders.
refuses '--resume needs --train-dir, the folder to resume from' --resume
refuses '--keep-best needs --train-dir, the folder to keep it in' --keep-best
: >"$work/file"
refuses "$work/file is not a folder" "${base[@]}" --train-dir "$work/file"
refuses "the folder $work/file/below cannot be created: Not a directory" "${base[@]}" --train-dir "$work/file/below"
refuses 'the folder /proc/cupola cannot be created: ' "${base[@]}" --train-dir /proc/cupola
mkdir "$work/locked"
chmod 555 "$work/locked"
for words in 'locked cannot be written' 'locked/below cannot be created'; do
    as_other_user 'a folder that may not be written' \
        refuses "the folder $work/$words: Permission denied" "${base[@]}" --train-dir "$work/${words%% *}"
done
mkdir "$work/none"
refuses "$work/none has no checkpoint to resume from" "${base[@]}" --train-dir "$work/none" --resume

# A folder that has checkpoints.
trains "${base[@]}" --train-dir "$folder" --max-steps 4 --checkpoint-every 2
[ "$(checkpoints "$folder")" = '2 4' ] || fail "not the checkpoints of steps 2 and 4"
refuses_to_go_on "$folder has checkpoints, the newest of step 4: --resume continues from it, another --train-dir starts a new run" \
    "${base[@]}" --train-dir "$folder" --max-steps 6

# Other settings: the message names each that has changed, and those that may change.
goes_on=("${base[@]}" --train-dir "$folder" --max-steps 6 --resume)
other='is of a run with other settings: '
refuses_to_go_on "$other""seed was 1 and is 2; order was shuffled, seed 1 and is shuffled, seed 2; --max-steps (but for a cosine), --num-devices " "${goes_on[@]}" --seed 2
refuses_to_go_on "$other""batch_size was 8 and is 16; " "${base[@]:0:2}" --threads-per-device 1 --batch-size 16 --train-dir "$folder" --max-steps 6 --resume
refuses_to_go_on "replicas was 1 and is 2; " "${goes_on[@]}" --num-replicas 2
refuses_to_go_on "accumulation was 1 and is 3; " "${goes_on[@]}" --accumulation 3
refuses_to_go_on "optimizer was sgd and is sgd, momentum 0.9" "${goes_on[@]}" --optimizer momentum
refuses_to_go_on "optimizer was sgd and is adam" "${goes_on[@]}" --optimizer adam
refuses_to_go_on "learning_rate was 0.1, " "${goes_on[@]}" --learning-rate 0.2
refuses_to_go_on "learning_rate was 0.1, " "${goes_on[@]}" --schedule constant
refuses_to_go_on "learning_rate was 0.1, " "${goes_on[@]}" --lr-scaling linear
refuses_to_go_on "optimizer was sgd and is sgd" "${goes_on[@]}" --clip-norm 1
refuses_to_go_on "moving_average was " "${goes_on[@]}" --ema-decay 0
refuses_to_go_on "; accumulation was 1 and is 2; seed was 1 and is 7; " "${goes_on[@]}" --num-replicas 3 --accumulation 2 --seed 7
refuses_to_go_on "continuing from $folder/model-4.safetensors here would not give the same bits: threads_per_device was 1 and is 2" \
    --data-dir "$work/data" --batch-size 8 --threads-per-device 2 --train-dir "$folder" --max-steps 6 --resume
refuses_to_go_on 'model' "${goes_on[@]}" --model resnet
# On a processor without bfloat16 that is reported first.
refuses_to_go_on "$(grep -q avx512_bf16 /proc/cpuinfo && echo 'precision was float and is bf16' || echo 'bfloat16 ')" "${goes_on[@]}" --precision bf16
refuses_to_go_on "data was " --data-dir "$2" "${goes_on[@]:2}"
# Differences of the machine: another instruction set, another algorithm for convolutions.
through='env ONEDNN_MAX_CPU_ISA=SSE41'
refuses_to_go_on "here would not give the same bits: " "${goes_on[@]}"
grep -Eq "isa was .* and is sse41 \(oneDNN\), " "$work/errors" || fail "the instruction set is not named"
through=
trains "${base[@]}" --train-dir "$work/direct" --max-steps 4 --convolution direct
"$program" "${base[@]}" --train-dir "$work/direct" --max-steps 6 --resume --convolution winograd >"$work/output" 2>"$work/errors" && fail "another algorithm is taken"
grep -q 'would not give the same bits: convolution was direct and is winograd; ' "$work/errors" || fail "the algorithm is not named"
cp -r "$folder" "$work/threads"
trains --data-dir "$work/data" --batch-size 8 --threads-per-device 2 --train-dir "$work/threads" --max-steps 6 --resume-anyway
grep -q "with other settings: threads_per_device was 1 and is 2$" "$work/output" || fail "--resume-anyway does not say what differs of the machine"
# --resume-anyway rejects the state of another optimiser, and moving averages that the checkpoint lacks.
refuses_to_go_on "$folder/model-4.safetensors cannot be resumed from: this optimiser keeps exp_avg, exp_avg_sq, and the state has none" \
    "${base[@]}" --train-dir "$folder" --max-steps 6 --resume-anyway --optimizer adam
refuses_to_go_on "$folder/model-4.safetensors cannot be resumed from: this training keeps no moving averages, and the state has them" \
    "${base[@]}" --train-dir "$folder" --max-steps 6 --resume-anyway --ema-decay 0
trains "${base[@]}" --train-dir "$work/squares" --max-steps 2 --optimizer rmsprop
refuses "cannot be resumed from: this optimiser keeps momentum_buffer, and the state has square_avg" \
    "${base[@]}" --train-dir "$work/squares" --max-steps 4 --resume-anyway --optimizer momentum
cp -r "$folder" "$work/anyway"
trains "${base[@]}" --train-dir "$work/anyway" --max-steps 6 --resume-anyway --seed 2
grep -q "^warning: continuing from $work/anyway/model-4.safetensors with other settings: seed was 1 and is 2; order was shuffled, seed 1 and is shuffled, seed 2$" "$work/output" ||
    fail "--resume-anyway does not say what differs"
[ "$(checkpoints "$work/anyway")" = '2 4 6' ] || fail "--resume-anyway does not go on"

# The best checkpoint of another run is neither compared nor replaced.
best=("${base[@]}" --keep-best --checkpoint-every 2)
trains "${best[@]}" --train-dir "$work/best" --max-steps 2
cp -r "$work/best" "$work/begins"
rm "$work/begins/model-2.safetensors"
folder=$work/begins
refuses_to_go_on "$folder/model-best.safetensors is the best checkpoint of another run: rename it, or start in another --train-dir" \
    "${best[@]}" --train-dir "$folder" --max-steps 2
refuses_to_go_on "$folder/model-best.safetensors is the best checkpoint of another run" "${base[@]}" --train-dir "$folder" --max-steps 2
trains "${best[@]}" --train-dir "$work/seed" --max-steps 2 --seed 2
folder=$work/seed
cp "$work/best/model-best.safetensors" "$folder"
refuses_to_go_on "$folder/model-best.safetensors is the best checkpoint of a run with other settings: seed was 1 and is 2; order was shuffled, seed 1 and is shuffled, seed 2; rename it, or --resume-anyway" \
    "${best[@]}" --train-dir "$folder" --max-steps 4 --seed 2 --resume
trains "${best[@]}" --train-dir "$folder" --max-steps 4 --seed 2 --resume-anyway
grep -q "^warning: $folder/model-best.safetensors is the best checkpoint of a run with other settings: seed was 1 and is 2; order was shuffled, seed 1 and is shuffled, seed 2$" "$work/output" ||
    fail "--resume-anyway does not say that the best checkpoint is of another run"
folder=$work/best
cp "$work/run/model-4.safetensors" "$folder/model-best.safetensors"
refuses_to_go_on "$folder/model-best.safetensors has no metric to compare with" \
    "${best[@]}" --train-dir "$folder" --max-steps 4 --resume
rm "$folder/model-best.safetensors"
trains "${best[@]}" --train-dir "$folder" --max-steps 4 --resume
folder=$work/run

# Damage: a truncated file, or one wrong bit in the middle; the next valid checkpoint is used, and the end is the same.
trains "${base[@]}" --train-dir "$work/whole" --max-steps 6
cut_short() { truncate -s -1 "$1"; }
flip_bit() {
    local place byte
    place=$(($(stat -c %s "$1") / 2))
    byte=$(od -An -tu1 -j $place -N 1 "$1")
    # shellcheck disable=SC2059
    printf "\\x$(printf %02x $((byte ^ 16)))" | dd of="$1" bs=1 seek=$place conv=notrunc status=none
}
empty() { : >"$1"; }
for damage in cut_short flip_bit empty; do
    rm -rf "$work/damaged"
    cp -r "$folder" "$work/damaged"
    $damage "$work/damaged/model-4.safetensors"
    trains "${base[@]}" --train-dir "$work/damaged" --max-steps 6 --resume
    [ "$(grep -c "^warning: $work/damaged/model-4.safetensors is \(damaged\|truncated\)" "$work/output")" = 1 ] ||
        fail "no warning of the damage $damage"
    grep -q "^resumed from $work/damaged/model-2.safetensors: step 2 comes next" "$work/output" || fail "not the next valid one after $damage"
    cmp "$work/damaged/model-6.safetensors" "$work/whole/model-6.safetensors" || fail "not the same bits at the end after $damage"
done
cp -r "$folder" "$work/all"
cut_short "$work/all/model-2.safetensors"
flip_bit "$work/all/model-4.safetensors"
run "${base[@]}" --train-dir "$work/all" --max-steps 6 --resume
[ "$(grep -c '^warning: ' "$work/output")" = 2 ] || fail "not a warning for each of two damaged checkpoints"
refuses "$work/all has no valid checkpoint to resume from: 2 are damaged" "${base[@]}" --train-dir "$work/all" --max-steps 6 --resume
: >"$folder/model-9.safetensors.partial-1-0"
cp -r "$folder" "$work/left"
trains "${base[@]}" --train-dir "$work/left" --max-steps 6 --resume
grep -q "^warning: $work/left/model-9.safetensors.partial-1-0 was removed: a training ended while it was writing this file$" "$work/output" ||
    fail "no message that a half-written file was removed"
no_temporary "$work/left" || fail "a half-written file is left"
rm "$folder/model-9.safetensors.partial-1-0"

# Two trainings in one folder.
"$program" "${base[@]}" --train-dir "$work/shared" --max-steps 1000000 --log-every 1 >"$work/first" 2>&1 </dev/null &
first=$!
trap 'kill -9 $first 2>/dev/null || true; chmod -R u+rwx "$work"; rm -rf "$work"' EXIT
wait_for 'grep -q ": step 1," "$work/first"'
for resume in '' --resume; do
    # shellcheck disable=SC2086
    refuses "the folder $work/shared is in use by another training, process $first" "${base[@]}" --train-dir "$work/shared" $resume
done
kill -0 $first || fail "the first training ended too"
kill -TERM $first
wait $first || true
trains "${base[@]}" --train-dir "$work/shared" --max-steps 1 --resume

# A full disk, simulated by a limit on the size of files that the newest checkpoint exceeds. The signal of that limit is not
# ignored here: the program must not be ended by it.
cp -r "$folder" "$work/small"
through='prlimit --fsize=4194304'
run "${base[@]}" --train-dir "$work/small" --max-steps 6 --resume
through=
[ $status = 1 ] || fail "exit status $status with a full disk"
grep -Eqx "cifar10_train: $work/small/model-6.safetensors cannot be written: (File too large|No space left on device), after [0-9]+ bytes" "$work/errors" ||
    fail "no message that the disk is full"
[ "$(wc -l <"$work/errors")" = 1 ] || fail "not one line on standard error"
no_temporary "$work/small" || fail "a half-written file is left on the full disk"
cmp "$work/small/model-4.safetensors" "$folder/model-4.safetensors" || fail "the older checkpoint was harmed"
trains "${base[@]}" --train-dir "$work/small" --max-steps 6 --resume
cmp "$work/small/model-6.safetensors" "$work/whole/model-6.safetensors" || fail "not the same bits at the end after a full disk"

# The log: optional parts after the line of the tutorial, and the same lines in the folder.
two=("${base[@]}" --num-replicas 2 --max-steps 3 --log-every 1)
line='^[0-9-]{10} [0-9:.]{15}: step [0-9]+, loss = [0-9]+\.[0-9]{2} \([0-9]+\.[0-9] examples/sec; [0-9]+\.[0-9]{3} sec/batch\)'
lines() {
    grep ': step ' "$work/output" >"$work/lines" || true
    [ "$(wc -l <"$work/lines")" = 3 ] || fail "not 3 log lines"
    ! grep -Ev "$line$1\$" "$work/lines" || fail "not a line as asked for"
}
number='[0-9]+\.[0-9]+'
trains "${two[@]}" --log-learning-rate --train-dir "$work/log"
lines ', learning_rate = 0\.1'
without_times() { sed -E 's/^[^:]*:[^:]*:[^:]*: //; s/\([^)]*sec[^)]*\)//' "$1"; }
diff <(without_times "$work/lines") <(grep ': step ' "$work/log/train.log" | without_times -) || fail "train.log has other lines than standard output"
trains "${two[@]}" --log-loss each
lines ", losses = $number $number"
awk '{ sub(/.*loss = /, ""); mean = $1; sub(/.*losses = /, ""); off = mean - ($1 + $2) / 2; if (off > 0.011 || off < -0.011) exit 1 }' "$work/lines" ||
    fail "the loss is not the mean of the replicas' losses"
sed -E 's/.* //' "$work/lines" >"$work/last"
trains "${two[@]}" --log-loss last
lines ''
sed -E 's/.*loss = ([0-9.]+) .*/\1/' "$work/lines" | diff - "$work/last" || fail "--log-loss last is not the last replica's loss"
trains "${two[@]}" --log-parts
lines "(, [a-z0-9_/]+ = $number \(smoothed $number\))+, total_loss = $number \(smoothed $number\)"
grep -q 'cross_entropy = ' "$work/lines" && grep -q 'weight_decay/local3 = ' "$work/lines" || fail "not every part of the loss is in the line"

# JSON: each line is an object, that of a step has all values; the smoothed losses continue after a resume.
cat >"$work/json.cmake" <<'END'
string(JSON steps GET "${line}" step)
foreach(name IN ITEMS loss learning_rate examples examples_per_second seconds_per_step)
    string(JSON type TYPE "${line}" ${name})
    if(NOT type STREQUAL NUMBER)
        message(FATAL_ERROR "${name} is no number in ${line}")
    endif()
endforeach()
string(JSON replicas LENGTH "${line}" replicas)
string(JSON first GET "${line}" replicas 0)
string(JSON rate GET "${line}" learning_rate)
string(JSON examples GET "${line}" examples)
foreach(part IN ITEMS cross_entropy weight_decay/local3 weight_decay/local4 total_loss)
    foreach(kind IN ITEMS raw smoothed)
        string(JSON value GET "${line}" parts ${part} ${kind})
        string(APPEND values " ${value}")
    endforeach()
endforeach()
string(SUBSTRING "${rate}" 0 6 rate)
message(NOTICE "${steps} ${replicas} ${rate} ${examples}${values}")
END
# Prints the contents of the JSON lines of a run without the times.
objects() {
    local object
    while read -r object; do cmake -D line="$object" -P "$work/json.cmake" 2>&1 || fail "not JSON as it should be: $object"; done < <(grep '^{"step":[0-9]*,"loss"' "$1" || true)
}
# Checks that every line on standard output is an object, and the beginnings of those that are not of a step, in order.
others() {
    python3 - "$work/output" "$@" <<'END' || fail "not the objects that are asked for: $*"
import json, sys
lines = [json.loads(line) for line in open(sys.argv[1])]
assert all(isinstance(line, dict) for line in lines)
others = [line.get("message", "precision " + line.get("weights", "")) for line in lines if "loss" not in line]
assert len(others) == len(sys.argv) - 2, others
for line, beginning in zip(others, sys.argv[2:]):
    assert line.startswith(beginning) and not line.endswith("\n"), (line, beginning)
for line in lines:
    assert "precision" not in line or abs(line["precision"] * line["images"] - line["correct"]) < 1e-3, line
END
}
header=(data: name memory: replicas: 'optimiser: sgd' 'learning rate: ')
trains "${two[@]}" --json --train-dir "$work/json"
others "${header[@]}" 'summaries took ' 'precision trained parameters' 'precision moving averages'
objects "$work/output" >"$work/objects"
[ "$(cut -d ' ' -f 1,2,4 "$work/objects" | xargs)" = '0 2 16 1 2 16 2 2 16' ] || fail "not the steps, replicas and images of three objects"
objects "$work/json/train.log" | diff "$work/objects" - || fail "train.log has other objects than standard output"
! grep -q ': step ' "$work/output" || fail "--json prints the tutorial's lines too"
# The first smoothed loss is a tenth of the raw one.
awk 'NR == 1 { off = $6 * 10 - $5; if (off > 1e-6 || off < -1e-6) exit 1 }' "$work/objects" || fail "the first smoothed loss is not a tenth of the raw one"
trains "${two[@]:0:8}" --log-every 1 --json --train-dir "$work/parted" --max-steps 1
trains "${two[@]:0:8}" --log-every 1 --json --train-dir "$work/parted" --max-steps 3 --resume
others "${header[@]}" "resumed from $work/parted/model-1.safetensors: step 1 comes next" 'summaries took ' 'precision trained parameters' 'precision moving averages'
objects "$work/parted/train.log" | diff "$work/objects" - || fail "the smoothed losses do not go on after a resume"
echo "$checks command lines"
