#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Usage: readme.sh FOLDER BLOCK.... Runs the blocks of docs/how-to/install.md word for word and in their order, in an empty folder with a
# clone of Cupola: pip unpacks oneDNN's wheels, and a project uses Cupola in each of the ways. Every Python here with a pip is tried, because
# Debian's uses other folders. The wheels are made from the oneDNN in the checkout, so that nothing is fetched. The program is a small one, and
# src.hpp has the definitions that it needs: consume.sh compiles all of them, in parts and as one file.
# Environment variables: SOURCE (the checkout), CXX. Exits with 77 if there is no such oneDNN or no pip.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
folder=$1
shift
rm -rf "$folder"
mkdir -p "$folder/cupola" "$folder/wheels"
cd "$folder"
[ -e "$SOURCE/.deps/onednn/lib/libdnnl.so.3.2" ] || { echo "the checkout has no oneDNN of its own"; exit 77; }
program=examples/1_data_in_memory/data_in_memory.cpp
cp -r "$SOURCE/CMakeLists.txt" "$SOURCE/cmake" "$SOURCE/include" cupola
mkdir -p "cupola/${program%/*}" && cp "$here/consumer.cpp" "cupola/$program"
sed -i '/^#include </d; s|^#ifdef CUPOLA_SRC_FUNCTIONS$|&\n#include <cupola/tensor/algorithms.hpp>|' cupola/include/cupola/src.hpp
grep -A 1 '^#ifdef CUPOLA_SRC_FUNCTIONS$' cupola/include/cupola/src.hpp | grep -q algorithms  # otherwise it would be empty
git -c init.defaultBranch=main init -q cupola
git -C cupola add .
git -C cupola -c user.name=test -c user.email=test commit -q -m "all files"

# Wheels with the names and folders of oneDNN's wheels: the library under three names, headers and CMake's files.
python3 - "$SOURCE/.deps/onednn" $(sed -nE 's/^([a-z-]+)==([0-9.]+) .*/\1==\2/p' "$SOURCE/cmake/onednn.txt") <<'END'
import pathlib, sys, zipfile
onednn = pathlib.Path(sys.argv[1])
for wheel in sys.argv[2:]:
    name, version = wheel.replace("-", "_").split("==")
    begins = ("include/", "lib/cmake/") if "devel" in name else ("lib/libdnnl",)
    files = {str(path.relative_to(onednn)): path for path in onednn.rglob("*") if path.is_file()}
    with zipfile.ZipFile(f"wheels/{name}-{version}-py2.py3-none-manylinux1_x86_64.whl", "w") as archive:
        info, record = f"{name}-{version}.dist-info", []
        def add(path, contents):
            archive.writestr(path, contents)
            record.append(f"{path},,")
        for path in sorted(files):
            if path.startswith(begins):
                add(f"{name}-{version}.data/data/{path}", files[path].read_bytes())
        add(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {wheel.split('==')[0]}\nVersion: {version}\n")
        add(f"{info}/WHEEL", "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: false\nTag: py2-none-manylinux1_x86_64\nTag: py3-none-manylinux1_x86_64\n")
        archive.writestr(f"{info}/RECORD", "\n".join(record + [f"{info}/RECORD,,"]) + "\n")
END

mkdir bin
ln -s "$(command -v "$CXX")" bin/g++  # the command g++ in a block is the compiler of this build
unset DNNL_DIR
export CXX PATH=$PWD/bin:$PATH
export PIP_CONFIG_FILE=/dev/null PIP_NO_INDEX=1 PIP_FIND_LINKS=$PWD/wheels PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_ROOT_USER_ACTION=ignore
tried= all=
for block in $(printf '%s\n' "$@" | sort -V); do
    case $(<"$block") in
        *"python3 -m pip install"*)
            for python in $({ type -ap python3; echo /usr/bin/python3; } | xargs -n 1 readlink -f | sort -u); do
                "$python" -m pip --version >/dev/null 2>&1 || continue
                rm -rf onednn
                printf '#!/bin/sh\nexec %s "$@"\n' "$python" >bin/python3 && chmod +x bin/python3
                bash -eux "$block" || { echo "$python fails with the command of docs/how-to/install.md"; exit 1; }
                rm bin/python3
                for file in lib/libdnnl.so lib/libdnnl.so.3 lib/cmake/dnnl/dnnl-config.cmake include/oneapi/dnnl/dnnl.h; do
                    [ -e "onednn/$file" ] || { echo "$python leaves no onednn/$file:"; find onednn -maxdepth 3; exit 1; }
                done
                tried="$tried $python"
            done
            [ -n "$tried" ] || { echo "no Python here has pip"; exit 77; }
            rm -r wheels  # saves the space of three copies of a large library
            continue ;;
        *clang++-16*)
            command -v clang++-16 >/dev/null || continue
            # First without the copy: the error's own commands make one, and the same folder can be configured with it.
            cat >without_copy.sh <<'END'
sed -i 's/COMPONENTS compiled/COMPONENTS host/; s/cupola::compiled/cupola::host/' CMakeLists.txt
for try in onednn onednn-clang; do
    if cmake -B build-clang -DCMAKE_CXX_COMPILER=clang++-16 -DCMAKE_PREFIX_PATH="$PWD/prefix;$PWD/$try" 2>refused; then break; fi
    [ $try = onednn ]
    grep -E '^ +(cp -r|ln -s) ' refused >commands
    source ./commands
done
[ $try = onednn-clang ]
rm -r onednn-clang
END
            block="without_copy.sh $block" ;;
        # Without optimisation: a few seconds in place of minutes.
        *cupola::compiled* | *CUPOLA_SEPARATE_COMPILATION*)
            sed 's/-DCMAKE_BUILD_TYPE=Release/& -DCMAKE_CXX_FLAGS_RELEASE=-O0/; s/-O2/-O0/' "$block" >"quick-${block##*/}"
            block=quick-${block##*/} ;;
    esac
    all="$all $block"
done
# One shell, as for a reader: what a block exports holds for those after it.
cat $all >blocks.sh
bash -euxo pipefail blocks.sh
for built in build build-folder build-fetched .; do
    ldd "$built/program" | grep -F "$PWD/onednn/lib/" || { echo "the program of $built runs on another oneDNN"; exit 1; }
done
echo "$# blocks, tried with$tried"
