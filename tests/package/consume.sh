#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Covers: cupola/compiled.hpp, cupola/compiled_operations.hpp, cupola/compiled_training.hpp
# Covers: cupola/compiled_training_parts.hpp, cupola/host_operations.hpp, cupola/layers.hpp, cupola/optimizers.hpp
#
# Usage: consume.sh WAY FOLDER. Builds and runs a small program that uses Cupola in one of the five ways, or with the compiled library,
# in an empty folder, and checks that no flag of Cupola's own build reached its compiler. Environment variables:
#   SOURCE (the checkout), BUILD (its build), PROGRAM (the .cpp file), PREFIX (an installed Cupola), CXX, DNNL_DIR, DNNL_PREFIX.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
way=$1 folder=$2

rm -rf "$folder"
mkdir -p "$folder"

# All flags that a compile command may contain; -O2 is that of the user's project.
check_flags() {
    local word skip=
    for word in "$@"; do
        if [ -n "$skip" ]; then
            skip=
            continue
        fi
        case $word in
            -o | -c | -isystem | -idirafter | -MF | -MT) if [ "$word" != -c ]; then skip=1; fi ;;
            -I* | -L* | -l* | -D* | -MD | -O2 | -std=gnu++20 | -std=c++20 | -pthread) ;;
            -fopenmp | -fopenmp=libomp | -fopenmp-simd | -Wl,-rpath,* | -Wl,--disable-new-dtags) ;;
            -*)
                echo "the flag $word reached the consumer, in: $*"
                exit 1
                ;;
        esac
    done
}

case $way in
    find_package | add_subdirectory | fetch_content)
        cmake -S "$here/$way" -B "$folder" -G Ninja -DCMAKE_CXX_COMPILER="$CXX" -DCMAKE_BUILD_TYPE=Release \
            -DCMAKE_CXX_FLAGS_RELEASE=-O2 -DCMAKE_EXPORT_COMPILE_COMMANDS=ON -DCONSUMER_SOURCE="$PROGRAM" \
            -DCUPOLA_SOURCE="$SOURCE" -DCMAKE_PREFIX_PATH="$PREFIX" -DDNNL_DIR="$DNNL_DIR"
        cmake --build "$folder"
        commands=$(grep '"command":' "$folder/compile_commands.json" | sed 's/.*"command": "\(.*\)",*$/\1/')
        [ "$(wc -l <<<"$commands")" -eq 1 ] || { echo "more is compiled than the program: $commands"; exit 1; }
        read -ra words <<<"$commands"
        check_flags "${words[@]:1}"
        ;;
    pkg_config)
        export PKG_CONFIG_PATH=$PREFIX/share/pkgconfig
        onednn=--define-variable=onednn=$DNNL_PREFIX
        read -ra compile <<<"$(pkg-config "$onednn" --cflags cupola-host)"
        read -ra link <<<"$(pkg-config "$onednn" --libs cupola-host)"
        check_flags "${compile[@]}" "${link[@]}"
        "$CXX" -O2 "${compile[@]}" "$PROGRAM" "${link[@]}" -o "$folder/consumer"
        # No installed file contains a path of the build, except the debugging information of the compiled library.
        if grep -rlF --exclude='*.a' -e "$SOURCE/" -e "$BUILD/" "$PREFIX"; then
            echo "these installed files have paths into the checkout or the build"
            exit 1
        fi
        # The headers, which -I names, warn of nothing by the strict sets of a project that makes warnings errors.
        headers=$folder/headers.cpp strict=(-std=c++20 -fopenmp -fsyntax-only -Werror -Wall -Wextra -Wpedantic -Wconversion -Wsign-conversion -Wshadow
            -Wold-style-cast -Wcast-qual -Wcast-align -Wnon-virtual-dtor -Woverloaded-virtual -Wdouble-promotion -Wformat=2 -Wnull-dereference
            -Wundef -Wunused -Wextra-semi -Wimplicit-fallthrough)
        (cd "$PREFIX/include" && printf '#include <%s>\n' cupola/cupola.hpp cupola/host.hpp cupola/predict.hpp \
            cupola/{data,io,loss,metrics,models,optim,train}/*.hpp) >"$headers"
        read -ra all <<<"$(pkg-config "$onednn" --cflags cupola-host cupola-data cupola-tensorboard)"
        all=("${all[@]/#-I\/usr\//-isystem/usr/}")  # those of other libraries may warn
        for source in "$headers" "$SOURCE"/examples/{4_replicas_and_policy,two_heads,autoencoder}/*.cpp; do
            "$CXX" "${strict[@]}" -Wuseless-cast -Wlogical-op -Wduplicated-cond -Wduplicated-branches "${all[@]}" "$source"
            if command -v clang++-16 >/dev/null; then clang++-16 "${strict[@]}" "${all[@]}" "$source"; fi
        done
        # The component core alone needs none of the backend's libraries.
        if pkg-config --cflags --libs cupola | grep -E 'dnnl|openmp( |$)'; then exit 1; fi
        ;;
    plain)
        "$CXX" -O2 -std=c++20 -fopenmp -I "$SOURCE/include" -isystem "$DNNL_PREFIX/include" \
            "$PROGRAM" -L "$DNNL_PREFIX/lib" -ldnnl -Wl,-rpath,"$DNNL_PREFIX/lib" -o "$folder/consumer"
        ;;
    ops)
        # The library, compiled without optimisation for one instruction set and installed, and a program that links to it.
        cmake -S "$SOURCE" -B "$folder/library" -G Ninja -DCMAKE_CXX_COMPILER="$CXX" -DCMAKE_CXX_FLAGS=-O0 -DCMAKE_BUILD_TYPE=None \
            -DCUPOLA_BUILD_OPS=ON -DCUPOLA_OPS_ISAS=x86-64 -DCUPOLA_BUILD_TESTS=OFF -DCUPOLA_BUILD_EXAMPLES=OFF \
            -DCUPOLA_ENABLE_DATA=OFF -DCUPOLA_ENABLE_TENSORBOARD=OFF -DDNNL_DIR="$DNNL_DIR"
        cmake --build "$folder/library"
        cmake --install "$folder/library" --prefix "$folder/prefix"
        cmake -S "$here/ops" -B "$folder" -G Ninja -DCMAKE_CXX_COMPILER="$CXX" -DCMAKE_BUILD_TYPE=Release \
            -DCMAKE_CXX_FLAGS_RELEASE=-O2 -DCMAKE_PREFIX_PATH="$folder/prefix" -DDNNL_DIR="$DNNL_DIR"
        cmake --build "$folder"
        object=$folder/CMakeFiles/consumer.dir/consumer.cpp.o
        # No kernels, plans and workers are compiled with the program.
        if nm -C --defined-only "$object" | grep -v '::operation<' | grep -E ' [WTV] cupola::[a-z0-9_]*::(ops::[A-Za-z]*<.*>::|Plan<.*>::(Plan|args_of|forward)|impl::DeviceWorker<.*>::start|impl::(OperationNode|ReducingNode)<.*ops::)'; then
            echo "this is compiled with the program, and should be in the library"
            exit 1
        fi
        # The library contains each function that the headers leave out for programs that link to it: functions.cpp includes its header.
        reached=$("$CXX" -std=c++20 -fopenmp -M -I "$SOURCE/include" -isystem "$DNNL_PREFIX/include" "$SOURCE/cmake/ops/functions.cpp")
        while IFS= read -r header; do
            case $reached in
                *"$header"*) ;;
                *) echo "$header has functions marked CUPOLA_INLINE, and cmake/ops/functions.cpp does not reach it"; exit 1 ;;
            esac
        done < <(grep -rl --include='*.hpp' '^CUPOLA_INLINE\|^\[\[.*\]\] CUPOLA_INLINE' "$SOURCE/include")
        ;;
    examples)
        # Without optimisation, which halves the time: only the build is checked. cifar10_train needs the same libraries as these
        # and takes as long as all of them together, so it is left out.
        cmake -S "$SOURCE/examples" -B "$folder" -G Ninja -DCMAKE_CXX_COMPILER="$CXX" -DCMAKE_PREFIX_PATH="$PREFIX" \
            -DDNNL_DIR="$DNNL_DIR" -DCMAKE_BUILD_TYPE=Debug -DCMAKE_CXX_FLAGS_DEBUG=-O0 \
            "-DCUPOLA_EXAMPLES=cifar10_download;cifar10_eval;predict;1_data_in_memory;2_image_folder;3_own_layer;4_replicas_and_policy;5_checkpoint_resume_predict"
        cmake --build "$folder"
        "$folder/cifar10_eval" --help >"$folder/help"
        ln -s 1_data_in_memory "$folder/consumer"
        ;;
esac
"$folder/consumer"
