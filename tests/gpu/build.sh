#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Compiles and links the backend for NVIDIA GPUs and its tests in build/cuda, and runs the tests that need no GPU. Without nvcc it
# prints a message and ends with status 77, "skipped"; if CUPOLA_REQUIRE_CUDA is set, that is an error.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

if ! command -v "${CUDACXX:-nvcc}" >/dev/null && [ ! -x /usr/local/cuda/bin/nvcc ]; then
    if [ -n "${CUPOLA_REQUIRE_CUDA:-}" ]; then
        echo "CUPOLA_REQUIRE_CUDA is set, and there is no nvcc: install NVIDIA's CUDA toolkit 13, or name its nvcc in CUDACXX"
        exit 1
    fi
    echo "skipped: there is no nvcc, so nothing was compiled for CUDA"
    exit 77
fi
exec cmake --workflow --preset cuda
