#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Usage: package.sh BUILD CUDNN NCCL FOLDER. Installs the package of BUILD and builds a program with its components for GPUs. cuDNN and
# NCCL are laid out as in Python's wheels: in nvidia/<library>/lib, with only the file that has a version in its name.
# The environment variable CXX is the compiler.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
build=$1 cudnn=$2 nccl=$3 folder=$4
rm -rf "$folder"

cmake --install "$build" --prefix "$folder/prefix" >/dev/null
wheels=$folder/site-packages
mkdir -p "$wheels/nvidia/cudnn/lib" "$wheels/nvidia/nccl/lib"
ln -s "$(readlink -f "$cudnn")" "$wheels/nvidia/cudnn/lib/libcudnn.so.9"
ln -s "$(readlink -f "$nccl")" "$wheels/nvidia/nccl/lib/libnccl.so.2"

consumer=(-S "$here/package" -G Ninja -DCMAKE_CXX_COMPILER="$CXX" -DCMAKE_PREFIX_PATH="$folder/prefix")
cmake "${consumer[@]}" -B "$folder/build" -DCUPOLA_CUDA_WHEELS="$wheels"
cmake --build "$folder/build"
"$folder/build/consumer"
for library in cudnn nccl; do
    readelf -d "$folder/build/consumer" | grep -q "R.*PATH.*$wheels/nvidia/$library/lib" ||
        { echo "the run path does not name the wheel of $library"; exit 1; }
done

"$here/../package/refuse.sh" "cupola::nccl needs NCCL 2, whose nccl.h was not found. Install NVIDIA's package libnccl-dev or" \
    "$folder/refused" "${consumer[@]}" -DCMAKE_DISABLE_FIND_PACKAGE_NCCL=ON
