#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Usage: data.sh CIFAR10_TRAIN SAMPLE. Checks that invalid and damaged data sets are rejected with a message that names the file, and
# that no log is written.
. "$(dirname "${BASH_SOURCE[0]}")/support.sh" "$@"
sample=$2
record=3073

# refuses_data 'WORDS' PATH
refuses_data() {
    refuses "$1" --max-steps 1 --data-dir "$2" --train-dir "$work/log"
    [ ! -e "$work/log" ] || fail "a log was begun for $2"
}

refuses_data '/no/such/folder does not exist' /no/such/folder
mkdir "$work/empty"
refuses_data "$work/empty" "$work/empty"
echo 'not images' >"$work/notes.txt"
refuses_data "$work/notes.txt is truncated or is not an archive" "$work/notes.txt"
: >"$work/nothing.tar"
refuses_data "$work/nothing.tar is empty" "$work/nothing.tar"
head -c 500000 "$sample" >"$work/cut.tar.xz"
refuses_data "$work/cut.tar.xz is truncated or is not an archive" "$work/cut.tar.xz"

# Files that only root can read.
cp -r "$work/empty" "$work/locked"
cp "$sample" "$work/locked.tar.xz"
chmod 000 "$work/locked" "$work/locked.tar.xz"
for locked in "$work/locked" "$work/locked.tar.xz"; do
    as_other_user 'what may not be read' refuses_data "$locked cannot be read: Permission denied" "$locked"
done

# CIFAR-10's binary files: 20 images per file, all of class 0.
binary=$work/binary
whole_binary() {
    rm -rf "$binary"
    mkdir "$binary"
    for file in data_batch_{1..5} test_batch; do head -c $((20 * record)) /dev/zero >"$binary/$file.bin"; done
}
whole_binary
trains --data-dir "$binary" --max-steps 1 --batch-size 4
grep -q '100 training and 20 test images' "$work/output" || fail "the binary files are not counted right"
refuses '1 replica of 101 samples' --data-dir "$binary" --batch-size 101
truncate -s -1 "$binary/data_batch_3.bin"
refuses_data "$binary/data_batch_3.bin is truncated" "$binary"
whole_binary
: >"$binary/test_batch.bin"
refuses_data "$binary/test_batch.bin is empty" "$binary"
whole_binary
rm "$binary/data_batch_5.bin"
refuses_data "$binary/data_batch_5.bin does not exist" "$binary"
whole_binary
printf '\012' | dd of="$binary/data_batch_2.bin" bs=1 seek=$((7 * record)) conv=notrunc status=none
refuses_data "$binary/data_batch_2.bin has label 10" "$binary"

# ImageFolder: ten classes of one image each, from the sample.
mkdir "$work/sample"
(cd "$work/sample" && cmake -E tar xf "$sample")
top=$(dirname "$(find "$work/sample" -type d -name train)")
images=$work/images
whole_images() {
    rm -rf "$images"
    local split class
    for split in train test; do
        for class in "$top/$split"/*; do
            mkdir -p "$images/$split/${class##*/}"
            cp "$(find "$class" -type f | sort | head -n 1)" "$images/$split/${class##*/}/1.jpg"
        done
    done
}
whole_images
trains --data-dir "$images" --max-steps 1 --batch-size 4
grep -q '10 training and 10 test images' "$work/output" || fail "the folder's images are not counted right"
class=$(basename "$(find "$images/train" -mindepth 1 -type d | sort | head -n 1)")
rm "$images/train/$class/1.jpg"
refuses_data "$images has no image in the class folder train/$class" "$images"
whole_images
find "$images"/train "$images"/test -mindepth 1 -maxdepth 1 ! -name "$class" -exec rm -r {} +
refuses_data "$images has 1 class folders in train/" "$images"
whole_images
rm -r "$images/train/$class" "$images/test/$class"
refuses_data 'has 9 classes, but the network distinguishes 10' "$images"
whole_images
echo 'not a picture' >"$images/test/$class/1.jpg"
refuses_data "$images: test/$class/1.jpg is not a readable JPEG image" "$images"
whole_images
head -c 300 "$images/train/$class/1.jpg" >"$work/cut.jpg"
mv "$work/cut.jpg" "$images/train/$class/1.jpg"
refuses_data "$images: train/$class/1.jpg is not a readable JPEG image" "$images"
whole_images
rm -r "$images/test"
refuses_data "$images" "$images"
echo "$checks data sets"
