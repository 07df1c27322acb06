#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Usage: consume.sh BLOCK FOLDER. Runs a sh block, or builds a project of a cmake block, in a new folder with the files that the reader
# has: `program.cpp`, Cupola's checkout as `cupola`, an installed Cupola as `prefix` and oneDNN as `onednn`. Then runs the program.
# Environment variables: SOURCE, PROGRAM, PREFIX, DNNL_PREFIX, CXX.
set -euo pipefail
block=$1 folder=$2
rm -rf "$folder"
mkdir -p "$folder"
cd "$folder"
cp "$PROGRAM" program.cpp
ln -s "$SOURCE" cupola
ln -s "$PREFIX" prefix
ln -s "$DNNL_PREFIX" onednn
case $block in
    *.cmake)
        {
            printf 'cmake_minimum_required(VERSION 3.24)\nproject(reader LANGUAGES CXX)\nadd_executable(program program.cpp)\n'
            cat "$block"
        } >CMakeLists.txt
        cmake -S . -B build -G Ninja -DCMAKE_CXX_COMPILER="$CXX" -DCMAKE_PREFIX_PATH="$PWD/prefix;$PWD/onednn" \
            -DFETCHCONTENT_SOURCE_DIR_CUPOLA="$SOURCE"
        cmake --build build
        build/program
        ;;
    *)
        mkdir bin && ln -s "$(command -v "$CXX")" bin/g++  # the command g++ in a block is the compiler of this build
        PATH=$PWD/bin:$PATH bash -euxo pipefail "$block"
        ./program
        ;;
esac
