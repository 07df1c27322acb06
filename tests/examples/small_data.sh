# SPDX-License-Identifier: Apache-2.0
#
# A data set for runs of half a second, sourced by the tests that make many of them: 96 training and 16 test images as
# CIFAR-10's binary files. An epoch has 6 steps of 16 images.

# small_data FOLDER NOISE: writes the data set. Labels are used in turn; the pixels are bytes of NOISE, a compressed file.
small_data() {
    local file images i noise
    mkdir -p "$1"
    exec {noise}<"$2"
    for file in data_batch_{1..5} test_batch; do
        images=16
        [ $file != data_batch_1 ] || images=32
        for ((i = 0; i < images; ++i)); do
            # shellcheck disable=SC2059  # the label's byte is the format
            printf "\\x0$((i % 10))"
            head -c 3072 <&$noise
        done >"$1/$file.bin"
    done
    exec {noise}<&-
}

# Prints the steps of the checkpoints in a folder, the oldest first: "5 10".
checkpoints() { find "$1" -name 'model-[0-9]*.safetensors' | sed -E 's|.*/model-([0-9]+)\.safetensors|\1|' | sort -n | xargs; }

# Whether a folder has no temporary file.
no_temporary() { [ -z "$(find "$1" -name '*.partial-*')" ]; }

# wait_for 'CONDITION': waits until the command succeeds, at most a minute.
wait_for() {
    local tries
    for ((tries = 0; tries < 6000; ++tries)); do
        ! eval "$1" 2>/dev/null || return 0
        sleep 0.01
    done
    fail "a minute passed without: $1"
}
