#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Usage: refuse.sh SENTENCE FOLDER CMAKE-ARGUMENTS... . Configuring must fail, and say the sentence (CMake breaks lines).
set -euo pipefail
sentence=$1 folder=$2
shift 2
rm -rf "$folder"
if output=$(cmake -B "$folder" -G Ninja "$@" 2>&1); then
    echo "this configures: $*"
    exit 1
fi
flat=$(tr -s ' \n' '  ' <<<"$output")
case $flat in
    *"$sentence"*) ;;
    *)
        echo "it does not say: $sentence"
        echo "$output"
        exit 1
        ;;
esac
