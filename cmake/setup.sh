# SPDX-License-Identifier: Apache-2.0
#
# Shared by examples/run, tests/run and other commands: `cupola_help` answers --help, `cupola_setup` installs what is missing (Debian
# packages as root or with sudo, oneDNN and Open MPI 5 into .deps/ of the checkout), `cupola_configure` makes a build folder of one preset,
# `cupola_logged` runs a command and shows its output only if it fails, and meanwhile what it does. If nothing is missing, no network is used,
# and the check takes about 0.1 s.

cupola_root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cupola_deps=$cupola_root/.deps
cupola_log=$cupola_root/build/log
# By default Ninja starts more compilers than there are processors.
export CMAKE_BUILD_PARALLEL_LEVEL=${CMAKE_BUILD_PARALLEL_LEVEL:-$(nproc)}

# What a command's opening comment says of it.
cupola_usage() { sed -n '3,/^set /s/^# \{0,1\}//p' "$0"; }

# cupola_help ARGUMENT...: prints that and ends, before anything is installed or built, if --help is among the arguments.
cupola_help() {
    case " $* " in *" --help "* | *" -h "*) cupola_usage && exit 0 ;; esac
}

cupola_say() { printf '%s\n' "-- $*"; }

cupola_fail() {
    printf 'error: %s\n' "$*" >&2
    exit 1
}

# cupola_logged NAME COMMAND...: the output goes to build/log/NAME.log. What takes longer than cupola_progress_seconds reports on stderr
# what it does: a line each time, on a terminal one line that is renewed every second.
cupola_progress_seconds=10
cupola_logged() {
    local file=$cupola_log/$1.log status=0 end report
    shift
    mkdir -p "$cupola_log"
    : >"$file"
    # The reports end with the pipe, also when this shell is killed. A signal instead could meet a process that still has this shell's traps.
    exec {end}> >(cupola_report_progress "$file")
    report=$!
    "$@" >"$file" 2>&1 {end}>&- || status=$?
    exec {end}>&-
    wait "$report" || true
    if [ "$status" -ne 0 ]; then
        tail -n 60 "$file" >&2
        printf 'error: "%s" failed; all of its output is in %s\n' "$*" "$file" >&2
        return 1
    fi
}

cupola_report_progress() {
    local file=$1 begin=$SECONDS pause=$cupola_progress_seconds what columns
    set +eu  # a report that fails is left out
    if [ -t 2 ]; then pause=1; fi
    # Until the end of the input; after a pause the status of read is more than 128.
    while
        read -rt "$pause"
        [ $? -gt 128 ]
    do
        what="$((SECONDS - begin)) s, ${file#"$PWD"/}: $(cupola_current_work "$file")"
        if [ -t 2 ]; then
            columns=$(stty size <&2 2>/dev/null) && columns=${columns#* } || columns=80
            printf '\r\033[K%s' "${what:0:$((columns > 1 ? columns - 1 : 79))}" >&2
        else
            printf '   %s\n' "${what:0:1000}" >&2
        fi
    done
    if [ -t 2 ] && [ -n "$what" ]; then printf '\r\033[K' >&2; fi
}

# What a command with this log does now: of a build, the number of finished steps and the sources of this checkout that are compiled (Ninja
# names a step when it ends, which may be minutes later); of others, their last line.
cupola_current_work() {
    local count process arguments source sources=()
    count=$(tail -c 20000 "$1" | grep -aoE '^\[[0-9]+/[0-9]+\]' | tail -n 1)
    for process in /proc/[0-9]*; do
        mapfile -d '' -t arguments <"$process/cmdline" || continue
        # `g++ ... -c FILE`, `nvcc ... -c FILE -o FILE`, and not the parts that they start.
        [ ${#arguments[@]} -gt 4 ] || continue
        if [ "${arguments[-2]}" = -c ]; then source=${arguments[-1]}; elif [ "${arguments[-4]}" = -c ]; then source=${arguments[-3]}; else continue; fi
        if [[ $source = "$cupola_root"/* ]]; then sources+=("${source#"$cupola_root"/}"); fi
    done 2>/dev/null
    if [ -n "$count${sources[*]}" ]; then
        if [ ${#sources[@]} -gt 6 ]; then sources=("${sources[@]:0:6}" "and $((${#sources[@]} - 6)) more"); fi
        printf '%s' "${count:+$count }${sources[*]}"
    else
        tail -c 2000 "$1" | tr '\r' '\n' | grep -av '^[[:space:]]*$' | tail -n 1 | tr -cd '[:print:]'
    fi
}

# cupola_build NAME WHAT COMMAND...: cupola_logged for a build.
cupola_build() {
    local name=$1
    cupola_say "building $2 (log: ${cupola_log#"$PWD"/}/$name.log)"
    shift 2
    cupola_locked cupola_logged "$name" "$@"
}

# cupola_locked COMMAND...: one at a time in this checkout.
cupola_locked() {
    local lock status=0
    exec {lock}>"$cupola_deps/build-lock"
    if command -v flock >/dev/null && ! flock -n "$lock"; then
        cupola_say "waiting for another build in this checkout"
        flock "$lock"
    fi
    "$@" || status=$?
    exec {lock}>&-
    return "$status"
}

# Three tries with a pause between them, because networks fail sometimes.
cupola_retry() {
    local try
    for try in 1 2 3; do
        "$@" && return 0
        if [ "$try" -lt 3 ]; then sleep $((try * 5)); fi
    done
    return 1
}

# The first suitable compiler: that in CXX, or an installed one. g++ 12 and clang 16 are the first with enough of C++20.
cupola_compiler_suits() {
    local macros
    macros=$("$1" -dM -E -x c++ /dev/null 2>/dev/null) || return 1
    if [[ $macros =~ __clang_major__\ ([0-9]+) ]]; then
        [ "${BASH_REMATCH[1]}" -ge 16 ]
    else
        [[ $macros =~ __GNUC__\ ([0-9]+) ]] && [ "${BASH_REMATCH[1]}" -ge 12 ]
    fi
}

cupola_find_compiler() {
    local name
    if [ -n "${CXX:-}" ]; then
        cupola_compiler_suits "${CXX%% *}" ||
            cupola_fail "CXX names the compiler '$CXX'; Cupola needs g++ 12 or later, or clang++ 16 or later"
        return 0
    fi
    for name in c++ g++ g++-14 g++-13 g++-12; do
        if cupola_compiler_suits "$name"; then
            if [ "$name" != c++ ]; then export CXX=$name; fi
            return 0
        fi
    done
    return 1
}

# The least version of CMake: header sets that can be verified, and presets of schema 6.
cupola_cmake_suits() {
    local version
    version=$(cmake --version 2>/dev/null) || return 1
    [[ $version =~ ([0-9]+)\.([0-9]+) ]] && [ $((BASH_REMATCH[1] * 1000 + BASH_REMATCH[2])) -ge 3025 ]
}

cupola_has_header() {
    local folder
    for folder in "${cupola_include_folders[@]}"; do
        if [ -e "$folder/$1" ]; then return 0; fi
    done
    return 1
}

# A oneDNN 3 of the system, or one in the folders of the environment variables.
cupola_has_onednn() {
    local folder
    if [ -n "${DNNL_DIR:-}${DNNL_ROOT:-}" ]; then return 0; fi
    for folder in "${cupola_include_folders[@]}"; do
        if grep -qsE '^#define DNNL_VERSION_MAJOR +([3-9]|[1-9][0-9])' "$folder/oneapi/dnnl/dnnl_version.h"; then
            return 0
        fi
    done
    return 1
}

cupola_apt() { $cupola_sudo env DEBIAN_FRONTEND=noninteractive apt-get -q -o DPkg::Lock::Timeout=600 "$@"; }

cupola_apt_install() {
    # The lists of packages may be missing (container images) or older than the mirror; they are then fetched first.
    cupola_apt install -y --no-install-recommends "$@" ||
        { cupola_apt update && cupola_apt install -y --no-install-recommends "$@"; }
}

cupola_install_packages() {
    local ask="apt-get install --no-install-recommends $*"
    if ! command -v apt-get >/dev/null; then
        cupola_fail "packages are missing, and this system has no apt-get to install them (Debian's names): $*"
    fi
    cupola_sudo=
    if [ "$(id -u)" -ne 0 ]; then
        if command -v sudo >/dev/null && sudo -n true 2>/dev/null; then
            cupola_sudo="sudo -n"
        elif command -v sudo >/dev/null && [ -t 0 ] && [ -t 2 ]; then
            cupola_sudo=sudo  # asks for the password on the terminal
        else
            cupola_fail "packages are missing and cannot be installed without root; ask an administrator for: $ask"
        fi
    fi
    cupola_say "installing Debian packages: $*"
    if [ "$cupola_sudo" = sudo ]; then sudo -v || cupola_fail "packages are missing; ask an administrator for: $ask"; fi
    cupola_logged packages cupola_retry cupola_apt_install "$@" ||
        cupola_fail "the packages could not be installed; ask an administrator for: $ask"
}

# oneDNN from its authors' wheels, unpacked into a temporary folder that is renamed at the end, so that an interrupted set-up
# starts again. The wheels contain the library three times, under three names: two become links.
cupola_fetch_onednn() {
    local temporary=$cupola_deps/unpacking wheel lib
    [ "$(uname -m)" = x86_64 ] || cupola_fail "oneDNN 3 is missing, and there is no wheel for $(uname -m);" \
        "build it and set CMAKE_PREFIX_PATH to its folder"
    python3 -m pip --version >/dev/null 2>&1 || cupola_install_packages python3 python3-pip
    cupola_say "unpacking oneDNN 3.2 (55 MB) into ${cupola_deps#"$PWD"/}/onednn"
    rm -rf "$temporary"
    mkdir -p "$temporary/wheels"
    cupola_logged onednn cupola_retry python3 -m pip download --quiet --disable-pip-version-check --no-deps \
        --only-binary=:all: --require-hashes --requirement "$cupola_root/cmake/onednn.txt" --dest "$temporary/wheels" ||
        cupola_fail "oneDNN could not be fetched by pip; install oneDNN 3 (oneAPI's CPU library) yourself and add its" \
            "folder to CMAKE_PREFIX_PATH"
    for wheel in "$temporary"/wheels/*.whl; do python3 -m zipfile -e "$wheel" "$temporary"; done
    mkdir "$temporary/onednn"
    cp -r "$temporary"/*.data/data/. "$temporary/onednn"
    lib=$temporary/onednn/lib
    ln -sf libdnnl.so.3.2 "$lib/libdnnl.so.3"
    ln -sf libdnnl.so.3 "$lib/libdnnl.so"
    mv "$temporary/onednn" "$cupola_deps/onednn"
    rm -rf "$temporary"
}

# Open MPI 5.0 beside the system's, for the tests of programs that are built with one and run with the other. Its mpirun sets
# the paths of its libraries for the programs. Without it those tests are skipped, so nothing else depends on it.
cupola_fetch_openmpi5() {
    local temporary=$cupola_deps/unpacking5
    cupola_say "unpacking Open MPI 5.0 (18 MB) into ${cupola_deps#"$PWD"/}/openmpi5"
    rm -rf "$temporary"
    mkdir -p "$temporary/wheels"
    if ! { cupola_logged openmpi5 python3 -m pip download --quiet --disable-pip-version-check --no-deps --retries 1 \
        --only-binary=:all: --require-hashes --requirement "$cupola_root/cmake/openmpi5.txt" --dest "$temporary/wheels" &&
        python3 -m zipfile -e "$temporary"/wheels/*.whl "$temporary"; } >/dev/null 2>&1; then
        cupola_say "Open MPI 5.0 could not be fetched by pip (build/log/openmpi5.log); its tests are skipped"
    else
        # The zip file's permissions are lost.
        chmod +x "$temporary"/*.data/data/bin/*
        mv "$temporary"/*.data/data "$cupola_deps/openmpi5"
    fi
    rm -rf "$temporary"
}

# NVIDIA's disassembler, for the tests of the kernels' instructions, which are not checked without it.
cupola_fetch_nvdisasm() {
    local temporary=$cupola_deps/unpacking_nvdisasm
    cupola_say "unpacking nvdisasm (4 MB) into ${cupola_deps#"$PWD"/}/nvdisasm"
    rm -rf "$temporary"
    mkdir -p "$temporary/wheels" "$temporary/nvdisasm"
    if ! { cupola_logged nvdisasm python3 -m pip download --quiet --disable-pip-version-check --no-deps --retries 1 \
        --only-binary=:all: --require-hashes --requirement "$cupola_root/cmake/nvdisasm.txt" --dest "$temporary/wheels" &&
        python3 -m zipfile -e "$temporary"/wheels/*.whl "$temporary"; } >/dev/null 2>&1; then
        cupola_say "nvdisasm could not be fetched by pip (build/log/nvdisasm.log); the kernels' instructions are not checked"
    else
        # The zip file's permissions are lost.
        chmod +x "$temporary"/nvidia/*/bin/nvdisasm
        mv "$temporary"/nvidia/*/bin/nvdisasm "$temporary/nvdisasm"
        mv "$temporary/nvdisasm" "$cupola_deps/nvdisasm"
    fi
    rm -rf "$temporary"
}

# Clang's OpenMP code runs on LLVM's libomp. oneDNN's wheel needs libgomp.so.1, whose interface libomp has too. A link of that
# name to libomp, beside a separate copy of oneDNN, makes both use libomp, so that a process has one runtime.
cupola_make_onednn_for_clang() {
    local libomp temporary=$cupola_deps/linking
    libomp=$("$1" -print-file-name=libomp.so.5)
    if [ ! -e "$libomp" ]; then libomp=$("$1" -print-file-name=libomp.so); fi
    [ -e "$libomp" ] || return 1
    cupola_say "linking oneDNN with LLVM's OpenMP in ${cupola_deps#"$PWD"/}/onednn-clang"
    rm -rf "$temporary" "$cupola_deps/onednn-clang"
    cp -rl "$cupola_deps/onednn" "$temporary"
    ln -s "$(readlink -f "$libomp")" "$temporary/lib/libgomp.so.1"
    mv "$temporary" "$cupola_deps/onednn-clang"
}

# cupola_packages examples|tests|all_tests: puts into `packages` the Debian packages whose parts are missing; where cupola_bare is set, all
# those that a machine without any of them gets.
cupola_packages() {
    local prefix prefixes=()
    IFS=: read -ra prefixes <<<"${CMAKE_PREFIX_PATH:-}"
    cupola_include_folders=(/usr/include /usr/local/include "/usr/include/$(uname -m)-linux-gnu"
        /usr/local/cuda/include /usr/local/cuda/include/cccl)
    for prefix in "${prefixes[@]}"; do cupola_include_folders+=("$prefix/include"); done

    packages=()
    cupola_needs g++ cupola_find_compiler
    cupola_needs cmake cupola_cmake_suits
    cupola_needs ninja-build command -v ninja
    cupola_needs libarchive-dev cupola_has_header archive.h
    cupola_needs libjpeg62-turbo-dev cupola_has_header jpeglib.h
    cupola_needs libcli11-dev cupola_has_header CLI/CLI.hpp
    cupola_needs libprotozero-dev cupola_has_header protozero/pbf_writer.hpp
    cupola_needs libpng-dev cupola_has_header png.h
    cupola_needs libcurl4-openssl-dev cupola_has_header curl/curl.h
    cupola_needs libssl-dev cupola_has_header openssl/evp.h
    cupola_needs "python3 python3-pip" cupola_has_onednn_or_pip
    if [ "$1" = examples ]; then return 0; fi
    cupola_needs python3 command -v python3
    cupola_needs doctest-dev cupola_has_header doctest/doctest.h
    cupola_needs clang-format-16 command -v clang-format-16
    # Open MPI, for cupola::mpi: its headers and mpicc, and mpirun.
    cupola_needs libopenmpi-dev command -v mpicc
    cupola_needs openmpi-bin command -v mpirun
    # For the job file of Kubernetes.
    cupola_needs python3-yaml cupola_has_python_yaml
    if [ "$1" = tests ]; then return 0; fi
    cupola_needs pkgconf command -v pkg-config
    # The reference of the headers, and its style.
    cupola_needs doxygen command -v doxygen
    cupola_needs doxygen-awesome-css test -e /usr/share/doxygen-awesome-css
    # The second compiler, its OpenMP and its sanitizers.
    cupola_needs clang-16 command -v clang++-16
    cupola_needs clang-tidy-16 command -v clang-tidy-16
    cupola_needs libomp-16-dev test -e /usr/lib/llvm-16/lib/libomp.so
    cupola_needs libclang-rt-16-dev compgen -G '/usr/lib/llvm-16/lib/clang/16*/lib/linux/libclang_rt.tsan-x86_64.a'
}

# cupola_needs PACKAGES COMMAND...: they are missing where the command fails.
cupola_needs() {
    if [ -z "${cupola_bare:-}" ] && "${@:2}" >/dev/null; then return 0; fi
    packages+=($1)
}

cupola_has_python_yaml() { [ -e /usr/lib/python3/dist-packages/yaml ] || python3 -c 'import yaml' 2>/dev/null; }

# pip unpacks oneDNN.
cupola_has_onednn_or_pip() { [ -e "$cupola_deps/onednn" ] || cupola_has_onednn || python3 -m pip --version 2>/dev/null; }

# cupola_setup examples|tests|all_tests: the last adds what tests/run --all needs.
cupola_setup() {
    local purpose=$1 packages
    { mkdir -p "$cupola_deps" "$cupola_log" && [ -w "$cupola_deps" ] && [ -w "$cupola_log" ]; } 2>/dev/null ||
        cupola_fail "the checkout $cupola_root is not writable, but the build and oneDNN are written there"
    # A lock makes simultaneous set-ups wait for each other; it is released when this shell ends, in any way.
    exec {cupola_lock}>"$cupola_deps/lock"
    if command -v flock >/dev/null && ! flock -n "$cupola_lock"; then
        cupola_say "waiting for another set-up in this checkout"
        flock "$cupola_lock"
    fi

    cupola_packages "$purpose"
    if [ ${#packages[@]} -gt 0 ]; then cupola_install_packages "${packages[@]}"; fi
    if ! cupola_find_compiler; then
        cupola_fail "no C++20 compiler: Cupola needs g++ 12 or later, or clang++ 16 or later (set CXX)"
    fi
    cupola_cmake_suits || cupola_fail "CMake 3.25 or later is needed; this system's is older"

    if [ ! -e "$cupola_deps/onednn" ] && { ! cupola_has_onednn || [ "$purpose" = all_tests ]; }; then cupola_fetch_onednn; fi
    if [ "$purpose" != examples ] && [ ! -e "$cupola_deps/openmpi5" ]; then cupola_fetch_openmpi5; fi
    if [ "$purpose" = all_tests ] && [ ! -e "$cupola_deps/nvdisasm" ] && ! command -v nvdisasm >/dev/null &&
        { command -v "${CUDACXX:-nvcc}" >/dev/null || [ -x /usr/local/cuda/bin/nvcc ]; }; then
        cupola_fetch_nvdisasm
    fi
    local clang=clang++-16
    case ${CXX:-} in *clang*) clang=$CXX ;; *) if [ "$purpose" != all_tests ]; then clang=; fi ;; esac
    if [ -n "$clang" ] && [ -e "$cupola_deps/onednn" ] && [ ! -e "$cupola_deps/onednn-clang/lib/libgomp.so.1" ]; then
        cupola_make_onednn_for_clang "$clang" ||
            cupola_fail "$clang finds no libomp; install it with: apt-get install libomp-16-dev"
    fi
    exec {cupola_lock}>&-
}

# cupola_configure PRESET: configures once; later the build itself configures again after a change. A folder that was copied or
# moved here from another checkout is created again.
cupola_configure() { cupola_locked cupola_configure_folder "$1"; }
cupola_configure_folder() {
    local folder=$cupola_root/build/$1
    if [ -f "$folder/CMakeCache.txt" ] &&
        ! grep -qxF "CMAKE_HOME_DIRECTORY:INTERNAL=$cupola_root" "$folder/CMakeCache.txt"; then
        rm -rf "$folder"
    fi
    if [ ! -f "$folder/build.ninja" ]; then
        (cd "$cupola_root" && cupola_logged "configure-$1" cmake --preset "$1")
    fi
}
