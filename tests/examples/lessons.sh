#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Usage: lessons.sh PROGRAM FOLDER SAMPLE. Checks that a lesson of examples/ prints what the comment at its head says, learns its task, and
# is one file of fewer than 60 lines, and that a full disk for standard output is an error.
. "$(dirname "${BASH_SOURCE[0]}")/support.sh" "$@"
folder=$2 sample=$3
lesson=${program##*/}

# learns STEPS PART: checks that there is a line at each of these steps, and that the last loss is below this part of the first.
learns() {
    [ "$(losses | cut -d ' ' -f 1 | xargs)" = "$1" ] || fail "not the lines of steps $1"
    losses | awk -v part="$2" 'NR == 1 { first = $2 } { last = $2 } END { exit !(last < first * part) }' || fail "it does not learn"
}
# accuracy_above LEAST: checks the accuracy in the line of the program or of TrainingRun.
accuracy_above() {
    local accuracy
    accuracy=$(sed -nE 's/^(test )?accuracy = ([01]\.[0-9]{3})( \([0-9]+ samples\))?$/\2/p' "$work/output")
    awk -v accuracy="${accuracy:-0}" -v least="$1" 'BEGIN { exit !(accuracy > least) }' || fail "accuracy ${accuracy:-is missing}"
}

arguments=()
case $lesson in
    1_data_in_memory)
        trains
        learns '0 100 200 300' 0.2
        accuracy_above 0.95 ;;
    2_image_folder)
        trains
        grep -qx '5000 training and 1000 test images of 10 classes' "$work/output" || fail "it does not say what was read"
        learns '0 50 100 150 200 250' 0.8
        accuracy_above 0.25
        # A folder of images: the sample, unpacked, with fewer images.
        mkdir "$work/unpacked"
        (cd "$work/unpacked" && cmake -E tar xf "$sample")
        top=$(dirname "$(find "$work/unpacked" -type d -name train)")
        find "$top" -name '*[1-9].jpg' -delete
        trains "$top"
        grep -qE '^[1-9][0-9]* training and [1-9][0-9]* test images of 10 classes$' "$work/output" || fail "a folder is not read"
        ! grep -q '^5000 ' "$work/output" || fail "the sample is read instead of the folder"
        run "$work/none"
        [ "$status" = 1 ] && grep -qx "$work/none does not exist" "$work/errors" || fail "a folder that does not exist: exit status $status" ;;
    3_own_layer)
        trains
        grep -q '^Softsign on 8, batch 2, on Host: the gradients are correct (off by: input [0-9.e-]*)$' "$work/output" ||
            fail "the gradients are not right, or not checked"
        learns '0 200 400 600' 0.6
        accuracy_above 0.9 ;;
    4_replicas_and_policy)
        trains
        learns '0 500 1000 1500' 0.2
        accuracy_above 0.99 ;;
    5_checkpoint_resume_predict)
        predictions() { grep '^quadrant ' "$work/output" | xargs; }
        trains "$work/parted" 300
        learns '0 100 200' 0.2
        [ "$(predictions)" = 'quadrant 3 quadrant 2' ] || fail "not the points' quadrants: $(predictions)"
        trains "$work/parted" 700
        grep -qx "resumed from $work/parted/model-300.safetensors: step 300 comes next" "$work/output" || fail "it does not go on"
        [ "$(losses | cut -d ' ' -f 1 | xargs)" = '300 400 500 600' ] || fail "not the rest of the steps"
        accuracy_above 0.95
        [ "$(predictions)" = 'quadrant 3 quadrant 2' ] || fail "not the points' quadrants: $(predictions)"
        [ "$(grep -c ', loss = ' "$work/parted/train.log")" = 7 ] || fail "not both parts are in the log"
        trains "$work/whole" 700
        cmp "$work/parted/model-700.safetensors" "$work/whole/model-700.safetensors" || fail "not the bits of a run that was not stopped"
        run
        [ "$status" = 1 ] && grep -q '^usage: ' "$work/errors" || fail "no arguments: exit status $status"
        for steps in abc 7x '' -1; do
            run "$work/none" "$steps"
            [ "$status" = 1 ] && grep -Eqx "STEPS is a whole number, not \"$steps\"|a run must have 0 or more steps, not $steps" "$work/errors" ||
                fail "'$steps' steps: exit status $status"
        done
        [ ! -e "$work/none" ] || fail "a folder is made for no number of steps"
        arguments=("$work/whole" 700) ;;
    *) fail "there is no lesson $lesson" ;;
esac

status=0
"$program" "${arguments[@]}" >/dev/full 2>"$work/errors" || status=$?
[ "$status" = 1 ] && grep -q 'could not be written.*: No space left on device$' "$work/errors" || fail "a full standard output: exit status $status"

[ "$(find "$folder" -type f | wc -l)" = 1 ] || fail "$lesson is more than one file"
lines=$(cat "$folder"/*.cpp | wc -l)
[ "$lines" -lt 60 ] || fail "$lesson has $lines lines"
sed -n 3,6p "$folder"/*.cpp | grep -q "^// Lesson ${lesson%%_*}: " || fail "$lesson does not begin with what it shows"
sed -n 3,8p "$folder"/*.cpp | grep -q '^// Prints ' || fail "$lesson does not say what it prints"
echo "$checks runs; $lines lines"
