#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Usage: effects.sh CIFAR10_TRAIN SAMPLE. Checks that flags have their effects on the training: the schedules count all images of a step,
# each policy for batch statistics trains and resumes, the best checkpoint is the best, and lines on a terminal are complete.
. "$(dirname "${BASH_SOURCE[0]}")/support.sh" "$@"
. "$(dirname "${BASH_SOURCE[0]}")/small_data.sh"
small_data "$work/data" "$2"
base=(--data-dir "$work/data" --batch-size 8 --threads-per-device 1 --max-steps 1)

# 96 images: 12 steps of 8 per epoch. Each line: the schedule, the replicas, the accumulation, and the text in the log.
while IFS='|' read -r schedule replicas accumulation words; do
    trains "${base[@]}" --schedule "$schedule" --num-replicas "$replicas" --accumulation "$accumulation"
    grep -q "^learning rate: $words; learning rate not scaled: " "$work/output" || fail "--schedule $schedule, $replicas replicas, $accumulation batches"
done <<'END'
epochs|1|1|0.1, times 0.1 every 4200 steps: 350 epochs of 96 images seen, 8 per step
epochs|2|1|0.1, times 0.1 every 2100 steps: 350 epochs of 96 images seen, 16 per step
epochs|2|2|0.1, times 0.1 every 1050 steps: 350 epochs of 96 images seen, 32 per step
historic|1|1|0.1, times 0.1 every 4200 steps: 350 epochs by one replica's batch of 8, which is 350 epochs of 96 images seen by 1 replica
historic|2|1|0.1, times 0.1 every 4200 steps: 350 epochs by one replica's batch of 8, which is 700 epochs of 96 images seen by 2 replicas
resnet|1|1|0.1, 0.01 from step 984, 0.001 from step 1476, 0.0002 from step 3600: epochs of 12 steps, 96 images, 8 per step
resnet|2|2|0.1, 0.01 from step 246, 0.001 from step 369, 0.0002 from step 900: epochs of 3 steps, 96 images, 32 per step
END

# A difference in the last digits counts: it is another run, with other bits.
trains "${base[@]}" --train-dir "$work/exact" --learning-rate 0.1 --ema-decay 0.9999999 --clip-norm 1
same=("${base[@]:0:6}" --max-steps 2 --train-dir "$work/exact" --resume)
refuses 'learning_rate was 0.1, ' "${same[@]}" --learning-rate 0.10000004 --ema-decay 0.9999999 --clip-norm 1
refuses 'moving_average was moving averages, decay 0.9999999 ' "${same[@]}" --ema-decay 0.99999999 --clip-norm 1
refuses 'optimizer was sgd, gradient clipped to norm 1 and is sgd, gradient clipped to norm 1.0000004' "${same[@]}" --ema-decay 0.9999999 --clip-norm 1.0000004
trains "${same[@]}" --ema-decay 0.9999999 --clip-norm 1

# The policies for batch statistics: the same parameters, except with synchronized; different statistics; a resumed run equals a whole one.
resnet=(--data-dir "$work/data" --batch-size 4 --threads-per-device 1 --model resnet --num-replicas 2)
for policy in first last all merged synchronized; do
    trains "${resnet[@]}" --bn-stats $policy --max-steps 2 --train-dir "$work/$policy"
done
python3 - "$work" <<'END' || fail "not the parameters and statistics that the policies' names say"
import json, struct, sys
def tensors(policy):
    data = open(f"{sys.argv[1]}/{policy}/model-2.safetensors", "rb").read()
    (length,) = struct.unpack("<Q", data[:8])
    header = json.loads(data[8 : 8 + length])
    assert header["__metadata__"]["bn_stats"] == policy
    values = {k: data[8 + length + v["data_offsets"][0] : 8 + length + v["data_offsets"][1]] for k, v in header.items() if k != "__metadata__"}
    running = {k: v for k, v in values.items() if k.split(".")[-1] in ("running_mean", "running_var") and not k.startswith("ema.")}
    plain = {k: v for k, v in values.items() if k not in running and not k.startswith(("ema.", "optimizer."))}
    assert len(running) == 86 and len(plain) == 131, (len(running), len(plain))
    return running, plain
found = {policy: tensors(policy) for policy in ("first", "last", "all", "merged", "synchronized")}
for policy, (running, plain) in found.items():
    assert (plain == found["first"][1]) == (policy != "synchronized"), policy
    for other in found:
        assert (running == found[other][0]) == (policy == other), (policy, other)
END
trains "${resnet[@]}" --bn-stats synchronized --max-steps 1 --train-dir "$work/parted"
trains "${resnet[@]}" --bn-stats synchronized --max-steps 2 --train-dir "$work/parted" --num-devices 1 --resume
cmp "$work/parted/model-2.safetensors" "$work/synchronized/model-2.safetensors" || fail "not the same bits after a resume"
refuses 'bn_stats was synchronized and is merged; ' "${resnet[@]}" --bn-stats merged --max-steps 3 --train-dir "$work/parted" --resume

# Replicas with parameters of their own: the header has the numbers of each policy, and a resumed run equals a whole one.
own=("${base[@]:0:6}" --num-replicas 2 --num-devices 1 --optimizer nesterov-velocity)
while IFS='|' read -r flags words; do
    # shellcheck disable=SC2086
    trains "${own[@]}" --max-steps 1 --averaging $flags
    grep -q ", averaged by $words, on " "$work/output" || fail "the header does not describe --averaging $flags"
done <<'END'
local-sgd --period 2 --from-step 2|Periodic every 2 steps from step 2 on around ConcatMean
local-sgd --period 4 --fragments 2 --delay 1|Periodic every 4 steps, in 2 fragments, 1 step later, around ConcatMean
diloco --outer-momentum 0|Periodic every 16 steps around ConcatMean, the centre by sgd, learning rate constant 0.7
elastic|ElasticAveraging every 16 steps, moving rate 0.9 / replicas, around ConcatMean
elastic --moving-rate 0.7|ElasticAveraging every 16 steps, moving rate 0.7, around ConcatMean
END
grep -q '^warning: the moving rate 0.7 is not below ' "$work/output" || fail "no warning of a moving rate that is not stable"
own+=(--averaging diloco --period 2 --outer-momentum 0.8)
trains "${own[@]}" --outer-rate 0.5 --max-steps 5 --train-dir "$work/own"
trains "${own[@]}" --outer-rate 0.5 --max-steps 3 --train-dir "$work/parted-own"
refuses 'averaging was Periodic every 2 steps ' "${own[@]}" --outer-rate 0.6 --max-steps 5 --train-dir "$work/parted-own" --resume
trains "${own[@]}" --outer-rate 0.5 --max-steps 5 --train-dir "$work/parted-own" --resume
cmp "$work/own/model-5.safetensors" "$work/parted-own/model-5.safetensors" || fail "not the same bits after a resume with parameters of each replica"

# Asynchronous replicas: a free run in two parts is replayed in one by its order log, with the same losses.
free=("${base[@]:0:6}" --num-replicas 3 --num-devices 2 --averaging elastic --period 2 --log-every 1 --log-loss each --order-log "$work/order")
trains "${free[@]}" --order free --max-steps 4 --train-dir "$work/free"
losses >"$work/expected"
trains "${free[@]}" --order free --max-steps 9 --train-dir "$work/free" --resume
grep -q ', averaged by Asynchronous Elastic every 2 batches, moving rate 0.9 / replicas, in free order, at most 4 steps ahead, on ' "$work/output" ||
    fail "the header does not describe --order free"
losses >>"$work/expected"
trains "${free[@]}" --order replay --max-steps 9
losses | diff - "$work/expected" || fail "the replay of a free run has other losses"
[ "$(wc -l <"$work/expected")" = 9 ] || fail "not the losses of 9 steps"
refuses 'the order log has the steps 0 to 8, and not step 9' "${free[@]}" --order replay --max-steps 10
refuses "--order-log $work/none/order cannot be written: there is no folder $work/none" "${free[@]::${#free[@]}-1}" "$work/none/order" --order free --max-steps 1
refuses "$work/data/data_batch_1.bin" "${free[@]::${#free[@]}-1}" "$work/data/data_batch_1.bin" --order replay
for policy in 'downpour --period 2' 'backup --backup-count 2' 'hogwild --ahead 2'; do
    # shellcheck disable=SC2086
    trains "${base[@]:0:6}" --num-replicas 3 --max-steps 4 --averaging $policy
done
grep -q ', averaged by Hogwild, without an order, at most 2 steps ahead, on ' "$work/output" || fail "the header does not describe --averaging hogwild"

# A network in parts has the bits of the whole one, and is resumed with other parts, another timetable, other devices, or none.
parts=("${base[@]:0:6}" --num-replicas 2 --accumulation 2)
trains "${parts[@]}" --max-steps 4 --train-dir "$work/uncut"
for cut in '--pipeline 3 --pipeline-schedule gpipe' '--pipeline 2 --num-devices 2' '' '--pipeline 2 --num-devices 4 --log-device-placement'; do
    [ -d "$work/in-parts" ] && goes_on=--resume || goes_on=
    made=$((${made:-0} + 1))
    # shellcheck disable=SC2086
    trains "${parts[@]}" $cut --max-steps $made --train-dir "$work/in-parts" $goes_on
done
grep -q '^pipeline: 2 parts by 1F1B, 2 batches per step: ' "$work/output" || fail "not the figures of the pipeline"
grep -q '^placement: conv2 Conv2d<64, 5>: replica 0 on host:1, replica 1 on host:3$' "$work/output" || fail "not where the second part runs"
cmp "$work/in-parts/model-4.safetensors" "$work/uncut/model-4.safetensors" || fail "not the same bits in parts"

# The best checkpoint is that with the best moving averages on the sample's 1,000 test images, and its metric is their accuracy.
sample=(--batch-size 16 --threads-per-device 1 --log-every 0 --ema-decay 0.9)
trains "${sample[@]}" --max-steps 50 --train-dir "$work/best" --checkpoint-every 10 --keep-best
python3 - "$work/best/model-best.safetensors" >"$work/kept" <<'END'
import json, struct, sys
data = open(sys.argv[1], "rb").read()
metadata = json.loads(data[8 : 8 + struct.unpack("<Q", data[:8])[0]])["__metadata__"]
print(metadata["cupola.step"], "%.3f" % float(metadata["metric"]))
END
for step in 10 20 30 40 50; do
    [ $step = 10 ] && goes_on= || goes_on=--resume
    # shellcheck disable=SC2086
    trains "${sample[@]}" --max-steps $step --train-dir "$work/each-ten" $goes_on
    echo "$step $(sed -nE 's/^test accuracy.* = ([0-9.]+) .*/\1/p' "$work/output" | xargs)"
done >"$work/accuracies"
awk '$3 > best { best = $3; step = $1 } $2 > other { other = $2 } END { if (best == other) exit 1; print step, best }' "$work/accuracies" >"$work/best_of_all" ||
    fail "the trained parameters are as good as the averages, and nothing is tested: $(cat "$work/accuracies")"
diff "$work/best_of_all" "$work/kept" || fail "not the best is kept"

# The device of each operation.
trains "${base[@]}" --num-replicas 3 --num-devices 2 --log-device-placement
grep -q '^placement: conv1 Conv2d<64, 5>: replica 0 on host:0, replica 1 on host:0, replica 2 on host:1$' "$work/output" ||
    grep -q '^placement: conv1 Conv2d<64, 5>: replica 0 on host:0, replica 1 on host:1, replica 2 on host:1$' "$work/output" || fail "not where conv1 runs"
grep -q '^placement: averaging: ConcatMean, ' "$work/output" || fail "not who averages"

# Existing data are not downloaded.
mkdir "$work/fetched"
cp -r "$work/data" "$work/fetched/cifar-10-batches-bin"
trains --download --data-dir "$work/fetched" "${base[@]:2}"
grep -q "^$work/fetched/cifar-10-batches-bin exists already: 96 training and 16 test images$" "$work/output" || fail "no message that the data are there"
trains --download --data-dir "$work/fetched/cifar-10-batches-bin" "${base[@]:2}"
grep -q "^$work/fetched/cifar-10-batches-bin exists already: 96 training and 16 test images$" "$work/output" || fail "no message that these are the data"
[ ! -e "$work/fetched/cifar-10-batches-bin/cifar-10-batches-bin" ] || fail "data are downloaded into the data"

refuses '--download needs --data-dir, the folder for the images' --download

# A last update that makes parameters infinite: no later step would report it. A rate that is no finite float is refused before it.
refuses 'the loss on the test images is nan, with trained parameters: the training has diverged' "${base[@]}" --learning-rate 3e38
refuses 'the learning rate of step 0 is 1e+300, ' "${base[@]}" --learning-rate 1e300

# The log has the time of the summaries if there are any.
trains "${base[@]}" --train-dir "$work/summaries"
grep -Eq '^summaries took [0-9]+\.[0-9]{2} % of the training.s [0-9.]+ s$' "$work/output" || fail "no message with the time of the summaries"
trains "${base[@]}" --train-dir "$work/none" --summary-every 0
! grep -q '^summaries took' "$work/output" || fail "a cost of no summaries"

# Flags without an effect.
for flag in --checkpoint-every --keep-checkpoints --summary-every; do refuses "$flag requires --train-dir" "${base[@]}" $flag 1; done
# In bfloat16 Winograd's algorithm is the default where oneDNN has AVX512_BF16 and no AMX, and refused elsewhere.
for isa in AVX512_CORE_BF16 AVX512_CORE; do
    export ONEDNN_MAX_CPU_ISA=$isa
    if [ $isa = AVX512_CORE_BF16 ] && grep -q avx512_bf16 /proc/cpuinfo; then
        trains "${base[@]}" --precision bf16
        grep -q '^replicas: .* winograd convolutions' "$work/output" || fail "Winograd's algorithm is not the default in bfloat16"
        trains "${base[@]}" --precision bf16 --convolution direct
        grep -q '^replicas: .* direct convolutions' "$work/output" || fail "--convolution direct is not taken in bfloat16"
    elif [ $isa = AVX512_CORE ]; then
        refuses '--convolution winograd with --precision bf16 is for processors with AVX512_BF16 and without AMX' "${base[@]}" --convolution winograd --precision bf16
    fi
    unset ONEDNN_MAX_CPU_ISA
done
refuses '--resume needs --train-dir' "${base[@]}" --resume-anyway
refuses '--seed is given twice' "${base[@]}" --seed 1 --seed 2
refuses 'has more than 1000000000000 images' "${base[@]:0:2}" --batch-size 1000000000 --num-replicas 1048576 --accumulation 1048576
refuses "the folder $work/mistyped does not exist: there is nothing to resume from" "${base[@]}" --train-dir "$work/mistyped" --resume
[ ! -e "$work/mistyped" ] || fail "a folder was made for a run that does not exist"

# The output is JSON for any name of a folder.
strange=$work/$(printf 'caf\351 "\\')
cp -r "$work/data" "$strange"
trains --data-dir "$strange" "${base[@]:2}" --json
python3 -c 'import json, sys
lines = [json.loads(line) for line in open(sys.argv[1], encoding="utf-8")]
assert "caf\ufffd \"\\" in lines[0]["message"], lines[0]' "$work/output" || fail "a line that is no JSON"

# On a terminal, complete lines of the log overwrite the progress.
if SHELL=/bin/sh script -qec true /dev/null >/dev/null 2>&1 </dev/null; then
    SHELL=/bin/sh script -qec "'$program' ${base[*]:0:6} --max-steps 60 --log-every 1" "$work/terminal" >/dev/null </dev/null || fail "the run on a terminal failed"
    grep -q ' of 60 steps, loss ' "$work/terminal" || fail "no progress on a terminal"
    tr '\r' '\n' <"$work/terminal" | grep -E ': step [0-9]+, loss' >"$work/lines"
    [ "$(wc -l <"$work/lines")" = 60 ] || fail "not 60 lines of the log on a terminal"
    ! grep -Ev '^[0-9]{4}-[0-9-]+ [0-9:.]+: step ' "$work/lines" || fail "a line of the log does not begin a line of the terminal"
else
    echo "not tested, for script(1) is missing or makes none here: a terminal"
fi
echo "$checks runs"
