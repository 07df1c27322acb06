#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Usage: refuse.sh MESSAGE FOLDER CMAKE-ARGUMENTS... . Configuring must fail with the message (CMake breaks lines).
set -euo pipefail
message=$1 folder=$2
shift 2
rm -rf "$folder"
if output=$(cmake -B "$folder" -G Ninja "$@" 2>&1); then
    echo "this configures: $*"
    exit 1
fi
flat=$(tr -s ' \n' '  ' <<<"$output")
case $flat in
    *"$message"*) ;;
    *)
        echo "the message is not printed: $message"
        echo "$output"
        exit 1
        ;;
esac
