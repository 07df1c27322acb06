#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Usage: none.sh STATUS BEFORE PROGRAM ARGUMENTS... . On a machine without a GPU, PROGRAM must end with this status and print exactly
# one message, which follows BEFORE and says that there is no GPU.
set -uo pipefail
expected=$1 before=$2
shift 2
output=$("$@" 2>&1)
status=$?
version='[0-9]+\.[0-9]+'
for message in \
    "no NVIDIA driver was found, or it could not be loaded; a training on Cuda needs a GPU with a driver for CUDA $version; a training on Host needs neither" \
    "the NVIDIA driver of this machine is for CUDA $version, and this program was built with CUDA $version: install a newer driver" \
    "this process sees no NVIDIA GPU: there is a driver for CUDA $version, but no device \(CUDA_VISIBLE_DEVICES [^)]*\)"; do
    if [ "$status" -eq "$expected" ] && [[ $output =~ ^$before:\ $message$ ]]; then
        echo "$output"
        exit 0
    fi
done
if [ "$status" -eq 0 ]; then
    echo "there is a GPU here"
    exit 77
fi
echo "it ended with status $status and printed: $output"
exit 1
