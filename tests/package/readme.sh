#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Usage: readme.sh FOLDER. Runs the commands of docs/how-to/install.md word for word in an empty folder: pip unpacks oneDNN's wheels, Cupola
# is installed, and a project finds both. Every Python here with a pip is tried, because Debian's uses other folders. The wheels are
# made from the oneDNN in the checkout, so that nothing is fetched. Environment variables: SOURCE (the checkout), CXX. Exits with 77 if
# there is no such oneDNN or no pip.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
folder=$1
rm -rf "$folder"
mkdir -p "$folder/cupola" "$folder/wheels"
cd "$folder"
[ -e "$SOURCE/.deps/onednn/lib/libdnnl.so.3.2" ] || { echo "the checkout has no oneDNN of its own"; exit 77; }
# The commands use CMake's default generator, but a machine that runs the tests may have only Ninja.
command -v make >/dev/null || export CMAKE_GENERATOR=Ninja
cp -r "$SOURCE/CMakeLists.txt" "$SOURCE/cmake" "$SOURCE/include" cupola

# Prints the only line of the page that matches the expression.
word_for_word() {
    local lines
    lines=$(grep -E -e "$1" "$SOURCE/docs/how-to/install.md") || { echo "docs/how-to/install.md does not say: $1" >&2; exit 1; }
    [ "$(wc -l <<<"$lines")" = 1 ] || { echo "docs/how-to/install.md says more than once: $1" >&2; exit 1; }
    printf '%s\n' "$lines"
}
pip=$(word_for_word '^[A-Z_a-z= ]*python3 -m pip install ')
prepare=$(word_for_word '^cmake -S cupola ')
install=$(word_for_word '^cmake --install ')
configure=$(word_for_word '^cmake -B build ')
build=$(word_for_word '^cmake --build build$')

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

export PIP_CONFIG_FILE=/dev/null PIP_NO_INDEX=1 PIP_FIND_LINKS=$PWD/wheels PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_ROOT_USER_ACTION=ignore
tried=
for python in $({ type -ap python3; echo /usr/bin/python3; } | xargs -n 1 readlink -f | sort -u); do
    "$python" -m pip --version >/dev/null 2>&1 || continue
    rm -rf onednn bin
    mkdir bin && printf '#!/bin/sh\nexec %s "$@"\n' "$python" >bin/python3 && chmod +x bin/python3
    PATH=$PWD/bin:$PATH bash -euxc "$pip" || { echo "$python fails with the command of docs/how-to/install.md"; exit 1; }
    for file in lib/libdnnl.so lib/libdnnl.so.3 lib/cmake/dnnl/dnnl-config.cmake include/oneapi/dnnl/dnnl.h; do
        [ -e "onednn/$file" ] || { echo "$python leaves no onednn/$file:"; find onednn -maxdepth 3; exit 1; }
    done
    tried="$tried $python"
done
[ -n "$tried" ] || { echo "no Python here has pip"; exit 77; }

# Without Ninja, as for a reader who has only the Debian package `cmake`.
export CXX
bash -euxc "$prepare
$install"
cp "$here/consumer.cpp" program.cpp
{
    printf 'cmake_minimum_required(VERSION 3.24)\nproject(reader LANGUAGES CXX)\nadd_executable(program program.cpp)\n'
    sed -n '/^find_package(cupola /,/^```/{/^```/!p}' "$SOURCE/docs/how-to/install.md"
} >CMakeLists.txt
bash -euxc "$configure
$build"
build/program
rm -r wheels  # saves the space of three copies of a large library
ldd build/program | grep -F "$PWD/onednn/lib/" || { echo "the program runs on another oneDNN"; exit 1; }
echo "tried with$tried"
