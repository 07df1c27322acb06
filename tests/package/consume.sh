#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Covers: cupola/compiled_operations.hpp, cupola/compiled_training.hpp, cupola/mpi_src.hpp, cupola/host_operations.hpp, cupola/layers.hpp
# Covers: cupola/optimizers.hpp, cupola/src.hpp
#
# Usage: consume.sh WAY FOLDER. Builds and runs a small program that uses Cupola in one of the five ways, or compiled separately,
# in an empty folder, and checks that no flag of Cupola's own build reached its compiler. Environment variables:
#   SOURCE (the checkout), BUILD (its build), PROGRAM (the .cpp file), PREFIX (an installed Cupola), CXX, DNNL_DIR, DNNL_PREFIX.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
way=$1 folder=$2

rm -rf "$folder"
mkdir -p "$folder"
# g++ collects garbage from 512 MB on instead of 128 MB, as in the build of the tests: a fifth of the time of a file of definitions.
gnu=()
"$CXX" --version | grep -q clang || gnu=(--param=ggc-min-heapsize=524288)

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
        objects=$(cd "$folder" && find . -name '*.o')
        [ "$(wc -l <<<"$objects")" -eq 1 ] || { echo "more is compiled than the program: $objects"; exit 1; }
        commands=$(grep '"command":.*/consumer\.dir/' "$folder/compile_commands.json" | sed 's/.*"command": "\(.*\)",*$/\1/')
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
        # No installed file contains a path of the build.
        if grep -rlF -e "$SOURCE/" -e "$BUILD/" "$PREFIX"; then
            echo "these installed files have paths into the checkout or the build"
            exit 1
        fi
        # The component core alone needs none of the backend's libraries.
        if pkg-config --cflags --libs cupola | grep -E 'dnnl|openmp( |$)'; then exit 1; fi
        ;;
    strict)
        # The headers, which -I names, warn of nothing by the strict sets of a project that makes warnings errors; and each example alone
        # compiles from the headers: the other tests join them, and link what is compiled already.
        export PKG_CONFIG_PATH=$PREFIX/share/pkgconfig
        read -ra all <<<"$(pkg-config --define-variable=onednn="$DNNL_PREFIX" --cflags cupola-host cupola-data cupola-tensorboard cupola-onnx)"
        all=("${all[@]/#-I\/usr\//-isystem/usr/}")  # those of other libraries may warn
        headers=$folder/headers.cpp strict=(-std=c++20 -fopenmp -fsyntax-only -Werror -Wall -Wextra -Wpedantic -Wconversion -Wsign-conversion -Wshadow
            -Wold-style-cast -Wcast-qual -Wcast-align -Wnon-virtual-dtor -Woverloaded-virtual -Wdouble-promotion -Wformat=2 -Wnull-dereference
            -Wundef -Wunused -Wextra-semi -Wimplicit-fallthrough -DCUPOLA_SAMPLE_DATA='""' -DCUPOLA_IRIS_DATA='""')
        (cd "$PREFIX/include" && printf '#include <%s>\n' cupola/cupola.hpp cupola/host.hpp cupola/predict.hpp \
            cupola/{data,io,loss,metrics,models,optim,train}/*.hpp) >"$headers"
        # By g++ with a sanitizer, which takes fewer comparisons of pointers as constants.
        cat >>"$headers" <<'END'
using namespace cupola;
static_assert(ConvNeXtTiny<>::valid && EfficientNetLite0<>::valid && ResNet50<>::valid && MobileNetV2<>::valid && VGG16<>::valid);
static_assert(TransposedUNet<32, 32, 3, 2>::valid && !Conv2d<8, 3, groups(2)>::output(Shape{8, 8, 3}).error.empty());
END
        printf '%s\0' "$headers" "$SOURCE"/examples/two_heads/*.cpp |
            xargs -0 -n 1 -P "$(nproc)" "$CXX" "${strict[@]}" "${gnu[@]}" -fsanitize=undefined -Wuseless-cast -Wlogical-op -Wduplicated-cond -Wduplicated-branches "${all[@]}"
        if command -v clang++-16 >/dev/null; then
            # The headers with which nearly every program begins are parsed once, for the programs that include them. The examples that are
            # left out are compiled alone by `examples`, find_package and the build for CUDA.
            printf '#include <%s>\n' cupola/cupola.hpp cupola/host.hpp >"$folder/common.hpp"
            clang++-16 "${strict[@]/-fsyntax-only/-fpch-instantiate-templates}" "${all[@]}" -x c++-header "$folder/common.hpp" -o "$folder/common.pch"
            { echo "$headers" && find "$SOURCE"/examples -name '*.cpp' -not -path '*/cifar10_*' -not -path '*/1_*'; } >"$folder/programs"
            by_clang() { xargs -d '\n' -n 1 -P "$(nproc)" clang++-16 "${strict[@]}" "${all[@]}" "$@"; }
            xargs -d '\n' grep -l '^#include <cupola/cupola.hpp>' <"$folder/programs" |
                xargs -d '\n' grep -l '^#include <cupola/host.hpp>' >"$folder/beginning"
            by_clang -include-pch "$folder/common.pch" <"$folder/beginning"
            grep -vxFf "$folder/beginning" "$folder/programs" | by_clang
        fi
        exit
        ;;
    plain)
        "$CXX" -O2 -std=c++20 -fopenmp -I "$SOURCE/include" -isystem "$DNNL_PREFIX/include" \
            "$PROGRAM" -L "$DNNL_PREFIX/lib" -ldnnl -Wl,-rpath,"$DNNL_PREFIX/lib" -o "$folder/consumer"
        ;;
    compiled)
        # The package with the component mpi, where there is MPI.
        if command -v mpicc >/dev/null; then
            cmake -S "$SOURCE" -B "$folder/headers" -G Ninja -DCMAKE_CXX_COMPILER="$CXX" -DDNNL_DIR="$DNNL_DIR" -DCUPOLA_BUILD_TESTS=OFF \
                -DCUPOLA_BUILD_EXAMPLES=OFF -DCUPOLA_MPI=ON
            cmake --install "$folder/headers" --prefix "$folder/prefix"
            PREFIX=$folder/prefix
        fi
        # The library is built in the project, here without optimisation, and the program links to it.
        cmake -S "$here/compiled" -B "$folder" -G Ninja -DCMAKE_CXX_COMPILER="$CXX" -DCMAKE_BUILD_TYPE=Release \
            -DCMAKE_CXX_FLAGS_RELEASE="-O0 ${gnu[*]}" -DCMAKE_PREFIX_PATH="$PREFIX" -DDNNL_DIR="$DNNL_DIR" -DCMAKE_EXPORT_COMPILE_COMMANDS=ON
        cmake --build "$folder"
        object=$folder/CMakeFiles/consumer.dir/consumer.cpp.o
        # No kernels, plans and workers are compiled with the program.
        if nm -C --defined-only "$object" | grep -v '::operation<' | grep -E ' [WTV] cupola::[a-z0-9_]*::(ops::[A-Za-z]*<.*>::|Plan<.*>::(Plan|args_of|forward)|impl::DeviceWorker<.*>::start|impl::(OperationNode|ReducingNode)<.*ops::)'; then
            echo "this is compiled with the program, and should be in the library"
            exit 1
        fi
        [ "$(grep -c -- '-march=x86-64-v3 .*/compiled_for_avx2\.dir/' "$folder/compile_commands.json")" -eq 3 ] ||
            { echo "cupola_add_compiled does not pass its options"; exit 1; }
        [ -z "$(find "$folder/CMakeFiles/compiled_for_avx2.dir" -name '*.o')" ] || { echo "a library that nothing links to is built"; exit 1; }
        # The program with MPI, where the package has it: it compiles no agreement and no engine, and the other one does not load MPI.
        if [ -e "$folder/mpi_consumer" ]; then
            object=$folder/CMakeFiles/mpi_consumer.dir/mpi_consumer.cpp.o
            if nm -C --defined-only "$object" | grep -E ' [WTV] cupola::[a-z0-9_]*::(impl::(Process[A-Za-z]*Agreement<.*>::(agree|average|add_rows)|Step(Records|Vote)<.*>::(exchange|vote)|MpiProcesses::|ProcessRunPolicy::|ProcessPeers::(compare|exchange))|MpiEnvironment::MpiEnvironment)'; then
                echo "this is compiled with the program of MPI, and should be in the library"
                exit 1
            fi
            if readelf -d "$folder/consumer" | grep libmpi; then echo "a program without MPI loads it"; exit 1; fi
            export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
            said=$(OMP_NUM_THREADS=1 mpirun --oversubscribe --bind-to none -n 2 "$folder/mpi_consumer")
            grep -qx "2 processes: trained" <<<"$said" || { echo "the program of MPI says $said"; exit 1; }
        fi
        # src.hpp reaches each file of definitions, except those that need libraries which it does not link to; mpi_src.hpp those of MPI.
        reaches() { # reaches HEADER FOLDERS... : reads the files of definitions
            local header=$1 definitions reached
            reached=$("$CXX" -std=c++20 -fopenmp -DCUPOLA_SEPARATE_COMPILATION -M -I "$SOURCE/include" -isystem "$DNNL_PREFIX/include" "${@:2}" \
                -x c++ - <<<"#include <cupola/$header>")
            while IFS= read -r definitions; do
                case $reached in
                    *"$definitions"*) ;;
                    *) echo "cupola/$header does not reach $definitions"; exit 1 ;;
                esac
            done
        }
        reaches src.hpp < <(find "$SOURCE/include" -name '*.ipp' -exec grep -L '^CUPOLA_MPI_DECL' {} +)
        if command -v mpicc >/dev/null; then
            folders=()
            for each in $(mpicc --showme:incdirs); do folders+=(-isystem "$each"); done
            reaches mpi_src.hpp "${folders[@]}" < <(grep -rl '^CUPOLA_MPI_DECL' --include='*.ipp' "$SOURCE/include")
        fi
        ;;
    two_files)
        # Without CMake: a program's file and the one of src.hpp, without optimisation; then what goes wrong.
        export PKG_CONFIG_PATH=$PREFIX/share/pkgconfig
        onednn=--define-variable=onednn=$DNNL_PREFIX
        read -ra compile <<<"$(pkg-config "$onednn" --cflags cupola-compiled)"
        read -ra link <<<"$(pkg-config "$onednn" --libs cupola-compiled)"
        source=$(pkg-config --variable=source cupola-compiled)
        "$CXX" -O0 -fPIC "${gnu[@]}" "${compile[@]}" -c "$source" -o "$folder/src.o"
        "$CXX" -O0 "${gnu[@]}" "${compile[@]}" -c "$PROGRAM" -o "$folder/main.o"
        "$CXX" "$folder/main.o" "$folder/src.o" "${link[@]}" -o "$folder/consumer"
        # The definitions as a shared library.
        "$CXX" -shared "$folder/src.o" "${link[@]}" -o "$folder/libsrc.so"
        "$CXX" "$folder/main.o" -L"$folder" -lsrc "${link[@]}" -Wl,-rpath,"$folder" -o "$folder/with_library"
        "$folder/with_library" >"$folder/output_with_library"
        # links_not WHAT TEXT ARGUMENTS...: the linker rejects the arguments, and names what is wrong.
        links_not() {
            local what=$1 text=$2 errors
            shift 2
            if errors=$("$CXX" "$@" "${link[@]}" -o "$folder/wrong" 2>&1); then echo "$what links"; exit 1; fi
            grep -q "$text" <<<"$errors" || { echo "$what: the linker says $errors"; exit 1; }
        }
        name=include_cupola_src_hpp_in_exactly_one_file_with_the_same_flags
        printf '#include <cupola/core/error.hpp>\nint main() { return cupola::text(1).size() == 1 ? 0 : 1; }\n' >"$folder/small.cpp"
        "$CXX" -O0 "${compile[@]}" -c "$folder/small.cpp" -o "$folder/small.o"
        cp "$folder/src.o" "$folder/second.o"
        links_not "src.hpp in no file" "undefined reference to .cupola::v0_1::$name" "$folder/small.o"
        links_not "src.hpp in two files" "multiple definition of .cupola::v0_1::$name" "$folder/small.o" "$folder/src.o" "$folder/second.o"
        for flags in -march=x86-64-v3:v0_1_avx2 -D_GLIBCXX_DEBUG:v0_1_glibcxx_debug; do
            "$CXX" -O0 "${compile[@]}" "${flags%:*}" -c "$folder/small.cpp" -o "$folder/other.o"
            links_not "src.hpp with other flags than ${flags%:*}" "undefined reference to .cupola::${flags#*:}::$name" "$folder/other.o" "$folder/src.o"
        done
        # A file with mpi.hpp, which the package is without here, and the definitions of src.hpp alone.
        if command -v mpicc >/dev/null; then
            for each in $(mpicc --showme:incdirs); do compile+=(-isystem "$each"); done
            name=include_cupola_mpi_src_hpp_in_exactly_one_file_with_the_same_flags
            printf '#include <cupola/mpi.hpp>\nint main() {}\n' >"$folder/mpi.cpp"
            "$CXX" -O0 -I "$SOURCE/include" "${compile[@]}" -c "$folder/mpi.cpp" -o "$folder/mpi.o"
            links_not "mpi_src.hpp in no file" "undefined reference to .cupola::v0_1::$name" "$folder/mpi.o" "$folder/src.o"
        fi
        # By clang under AddressSanitizer, with its own oneDNN and a file of the program's own.
        clang_onednn=$SOURCE/.deps/onednn-clang
        if command -v clang++-16 >/dev/null && [ -d "$clang_onednn" ]; then
            echo '#include <cupola/src.hpp>' >"$folder/src.cpp"
            clang++-16 -O0 -fsanitize=address -std=c++20 -fopenmp -DCUPOLA_SEPARATE_COMPILATION -I "$SOURCE/include" -isystem "$clang_onednn/include" \
                "$PROGRAM" "$folder/src.cpp" -L "$clang_onednn/lib" -ldnnl -Wl,-rpath,"$clang_onednn/lib" -Wl,--disable-new-dtags -o "$folder/by_clang"
            LSAN_OPTIONS=suppressions=$SOURCE/tests/leaks_of_others.txt:print_suppressions=0 "$folder/by_clang" >"$folder/output_by_clang"
        fi
        ;;
    examples)
        # Without optimisation, which halves the time: only the build is checked, of the programs that between them need all libraries; `strict`
        # compiles the others. cifar10_train needs the same as these and takes longer than both, so it is left out.
        cmake -S "$SOURCE/examples" -B "$folder" -G Ninja -DCMAKE_CXX_COMPILER="$CXX" -DCMAKE_PREFIX_PATH="$PREFIX" \
            -DDNNL_DIR="$DNNL_DIR" -DCMAKE_BUILD_TYPE=Debug -DCMAKE_CXX_FLAGS_DEBUG="-O0 ${gnu[*]}" \
            "-DCUPOLA_EXAMPLES=cifar10_download;cifar10_eval"
        cmake --build "$folder"
        "$folder/cifar10_eval" --help
        exit
        ;;
esac
"$folder/consumer"
