#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Usage: problems.sh PROGRAM FOLDER. Checks that an example of a kind of problem prints what the comment at its head says, reaches its
# result, rejects wrong files with one message, and is one file of at most 80 lines, and that a full disk for standard output is an error.
. "$(dirname "${BASH_SOURCE[0]}")/support.sh" "$@"
folder=$2
problem=${program##*/}
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)

# says 'LINE': checks that the output has this line.
says() { grep -qx -- "$1" "$work/output" || fail "it does not print: $1"; }
# accuracy_above LEAST: checks the last accuracy in the output.
accuracy_above() {
    local accuracy
    accuracy=$(sed -nE 's/^(test )?accuracy = ([01]\.[0-9]{3})( \([0-9]+ samples\))?$/\2/p' "$work/output" | tail -n 1)
    awk -v accuracy="${accuracy:-0}" -v least="$1" 'BEGIN { exit !(accuracy > least) }' || fail "accuracy ${accuracy:-is missing}"
}
# learns_by_epochs EPOCHS: checks that there is a validation after each of these epochs, and after no other up to the last of them.
learns_by_epochs() {
    local last=${1##* }
    [ "$(sed -nE 's/^.*, epoch ([0-9]+), loss = [0-9.]+, validation loss = [0-9.]+[ ,].*/\1/p' "$work/output" |
        awk -v last="$last" '$1 <= last' | xargs)" = "$1" ] || fail "not the validations of epochs $1"
}
# stops 'WORDS' ARGUMENTS...: checks that the program prints one line with the words on standard error and ends with status 1.
stops() {
    local words=$1
    shift
    run "$@"
    [ "$status" = 1 ] && [ "$(wc -l <"$work/errors")" = 1 ] && grep -qF -- "$words" "$work/errors" ||
        fail "exit status $status, and not '$words'"
    checks=$((checks + 1))
}

arguments=()
case $problem in
    tabular_csv)
        data=$folder/../data/iris.csv
        trains "$work/run"
        says '120 flowers for training and 30 for validation, of 3 species by 4 columns'
        [ "$(losses | cut -d ' ' -f 1 | xargs)" = '0 100 200 300 400' ] || fail "not the lines of the steps"
        accuracy_above 0.9
        says 'the flower is virginica'
        trains "$work/run" "$data"
        says 'nothing to train: 500 steps are made, and .max_steps is 500'
        says 'the flower is virginica'
        # Lengths in another unit than those of the checkpoint, a missing column, a text, another name.
        awk -F, -v OFS=, 'NR > 1 { $4 *= 10 } 1' "$data" >"$work/millimetres.csv"
        stops 'standardization.input.means was 5.8' "$work/run" "$work/millimetres.csv"
        cut -d , -f 2- "$data" >"$work/three.csv"
        stops 'the batches have samples of 3, and the network takes 4' "$work/three" "$work/three.csv"
        sed '17s/^5\.[0-9]/5.x/' "$data" >"$work/text.csv"
        stops "$work/text.csv, line 17, column \"sepal_length\": \"5.x\" is not a number" "$work/text" "$work/text.csv"
        sed '1s/species/kind/' "$data" >"$work/kind.csv"
        stops "$work/kind.csv has no column \"species\"; its columns are \"sepal_length\"" "$work/kind" "$work/kind.csv"
        stops 'usage: tabular_csv FOLDER [FILE]'
        stops 'usage: tabular_csv FOLDER [FILE]' --help
        arguments=("$work/full") ;;
    lenet_digits)
        python3 "$here/make_digits.py" "$work" 2500 500
        trains "$work"
        says '2250 images for training, 250 for validation, 500 for the test'
        learns_by_epochs '1 2 3 4 5'
        accuracy_above 0.97
        mkdir "$work/wrong"
        cp "$work"/*-ubyte "$work/wrong"
        cp "$work/t10k-labels-idx1-ubyte" "$work/wrong/train-labels-idx1-ubyte"
        stops "$work/wrong/train-images-idx3-ubyte has 2500 images, and $work/wrong/train-labels-idx1-ubyte has 500 labels" "$work/wrong"
        rm "$work/wrong/t10k-images-idx3-ubyte"
        cp "$work"/train-labels-idx1-ubyte "$work/wrong"
        stops "$work/wrong/t10k-images-idx3-ubyte does not exist" "$work/wrong"
        stops 'usage: lenet_digits FOLDER'
        arguments=("$work") ;;
    two_heads)
        trains
        [ "$(losses | cut -d ' ' -f 1 | xargs)" = '0 100 200 300 400 500' ] || fail "not the lines of the steps"
        [ "$(grep -cE ', kind = [0-9.]+ \(smoothed [0-9.]+\), box = [0-9.]+ \(smoothed [0-9.]+\), total_loss = ' "$work/output")" = 6 ] ||
            fail "not the loss of each head on each line"
        [ "$(sed -nE 's/^([a-z]+): test loss = 0\.[0-9]{4}$/\1/p' "$work/output" | xargs)" = 'kind box' ] || fail "not the test loss of each head"
        awk '/^boxes are off by [0-9.]+ pixels$/ { found = $5 < 0.75 } END { exit !found }' "$work/output" ||
            fail "boxes are off by 0.75 pixels or more"
        accuracy_above 0.97 ;;
    regression)
        trains "$work/fit.svg"
        learns_by_epochs '20 40 60 80 100'
        sed -nE 's/^after step [0-9]+00: R squared = (0\.[0-9]{3}), deviation = (0\.[0-9]{3})$/\1 \2/p' "$work/output" |
            awk '{ good = $1 > 0.9 && $2 < 0.1 } END { exit !good }' || fail "R squared or the deviation is not good enough"
        # The points, and two lines that are close to each other in the whole picture.
        python3 - "$work/fit.svg" <<'PLOT' || fail "the plot is not right"
import sys
from xml.etree import ElementTree

svg = ElementTree.parse(sys.argv[1]).getroot()
shapes = lambda name: svg.findall("{http://www.w3.org/2000/svg}" + name)
lines = [[tuple(map(float, point.split(","))) for point in line.get("points").split()] for line in shapes("polyline")]
assert len(shapes("circle")) == 400 and len(lines) == 2 and len(lines[0]) == len(lines[1]) == 301
for (x, y), (at, learnt) in zip(*lines):
    assert x == at and 0 <= x <= 600.1 and 0 <= y <= 400 and abs(y - learnt) < 30, (x, y, learnt)
assert lines[0][0][0] == 0 and max(y for _, y in lines[0]) - min(y for _, y in lines[0]) > 100
PLOT
        stops "$work/none/fit.svg cannot be written: No such file or directory" "$work/none/fit.svg"
        stops 'usage: regression FILE.svg'
        arguments=("$work/full.svg") ;;
    autoencoder)
        trains
        learns_by_epochs '1 2 3 4'
        sed -nE 's/^.*, epoch 4, .*, binary_accuracy = ([01]\.[0-9]{3}) .*/\1/p' "$work/output" | awk '{ good = $1 > 0.98 } END { exit !good }' ||
            fail "too few pixels are reproduced"
        [ "$(grep -cE '^(##| \.){16}   (##| \.){16}$' "$work/output")" = 48 ] || fail "not three images" ;;
    fine_tune_images)
        # Two classes of the sample, whose images are enlarged, and features of random weights.
        python3 "$here/make_efficientnet.py" "$work/body.safetensors"
        mkdir "$work/unpacked"
        (cd "$work/unpacked" && cmake -E tar xf "$folder/../data/cifar10-sample.tar.xz")
        for class in frog ship; do
            for part in train test; do
                mkdir -p "$work/photographs/$part/$class"
                find "$work/unpacked" -path "*/$part/$class/*" -name '*.jpg' | sort | sed -n 1,8p |
                    xargs -I {} cp {} "$work/photographs/$part/$class"
            done
        done
        trains "$work/photographs" "$work/body.safetensors" "$work/model.onnx"
        says '16 training and 16 test images of the classes frog,ship'
        says '245 parameters and statistics loaded'
        learns_by_epochs '1 2 3 4 5 6 7 8'
        accuracy_above 0.2
        says "written: $work/model.onnx"
        for word in frog,ship preprocessing.shorter_side; do
            grep -q "$word" "$work/model.onnx" || fail "the file does not have $word"
        done
        mkdir "$work/photographs/train/cat" "$work/photographs/test/cat"
        cp "$work"/photographs/test/frog/* "$work/photographs/test/cat"
        cp "$work"/photographs/test/frog/* "$work/photographs/train/cat"
        stops 'this program is compiled for 2 classes, and the folder has 3: cat,frog,ship' "$work/photographs" "$work/body.safetensors" "$work/none.onnx"
        rm -r "$work"/photographs/*/cat
        stops "$work/none.pth does not exist" "$work/photographs" "$work/none.pth" "$work/none.onnx"
        file=$(find "$work/photographs/train/ship" -name '*.jpg' | sed -n 1p)
        head -c 100 "$file" >"$work/part" && mv "$work/part" "$file"
        stops "${file##*/}" "$work/photographs" "$work/body.safetensors" "$work/none.onnx"
        [ ! -e "$work/none.onnx" ] || fail "a file is written after an error"
        rm "$file"
        stops 'usage: fine_tune_images FOLDER WEIGHTS MODEL.onnx'
        arguments=("$work/photographs" "$work/body.safetensors" "$work/full.onnx") ;;
    fine_tuning)
        trains "$work/pretrained.safetensors"
        grep -q '^loaded 12: body.conv1.weight, ' "$work/output" || fail "it does not say what was loaded"
        says 'matched by no pattern 2: head.weight, head.bias'
        says '5,152 of 5,218 parameters are frozen; frozen batch normalisations use their running statistics'
        of() { sed -nE "s/^$1: accuracy = ([01]\.[0-9]{3})$/\1/p" "$work/output"; }
        awk -v first="$(of pretrained)" -v scratch="$(of 'from initial values')" -v tuned="$(of 'new head')" \
            'BEGIN { exit !(first > 0.98 && tuned > 0.88 && tuned > scratch + 0.1) }' || fail "$(grep accuracy "$work/output")"
        stops "$work/none/" "$work/none/file"
        stops 'usage: fine_tuning FILE'
        arguments=("$work/pretrained.safetensors") ;;
    export_onnx)
        trains "$work/model.onnx"
        [ "$(losses | cut -d ' ' -f 1 | xargs)" = '0 100 200' ] || fail "not the lines of the steps"
        says 'output kind: N x 2'
        says 'output place: N x 2'
        grep -q nothing,square "$work/model.onnx" || fail "the file has no metadata"
        stops "$work/none.safetensors does not exist" "$work/model.onnx" "$work/none.safetensors"
        stops 'usage: export_onnx MODEL.onnx [CHECKPOINT]'
        arguments=("$work/full.onnx") ;;
    *) fail "there is no problem $problem" ;;
esac

status=0
"$program" "${arguments[@]}" >/dev/full 2>"$work/errors" || status=$?
[ "$status" = 1 ] && grep -q 'could not be written.*: No space left on device$' "$work/errors" || fail "a full standard output: exit status $status"

[ "$(find "$folder" -type f | wc -l)" = 1 ] || fail "$problem is more than one file"
lines=$(cat "$folder"/*.cpp | wc -l)
[ "$lines" -le 80 ] || fail "$problem has $lines lines"
sed -n 3,10p "$folder"/*.cpp | grep -q '^// Prints ' || fail "$problem does not say what it prints"
echo "$checks runs; $lines lines"
