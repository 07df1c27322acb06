#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Usage: setup_test.sh ROOT: what cmake/setup.sh prints of a command that takes long and of one that fails, the packages and the commands of
# a bare machine, and that the commands answer --help before they install or build anything.
set -euo pipefail
source "$1/cmake/setup.sh"
errors=0
error() {
    echo "error: $*"
    errors=1
}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
cupola_root=$work cupola_log=$work/log cupola_deps=$work cupola_progress_seconds=0.2

# A "compiler" that runs until the report names its source, but at most 20 s.
cat >compiler <<'END'
echo '[3/7] Building CXX object first.o'
for ((i = 0; i < 400; ++i)); do
    if grep -q 'log/build\.log: \[3/7\] nets/second\.cpp$' report; then exit 0; fi
    sleep 0.05
done
exit 1
END
cupola_build build "the program" bash compiler -O2 -c "$work/nets/second.cpp" >said 2>report || error "no report names the source: $(cat report)"
[ "$(cat said)" = "-- building the program (log: log/build.log)" ] || error "the log is not named: $(cat said)"
# Without sources, the last line of the log.
cat >fetch <<'END'
printf 'first\nfetched 10%%\rfetched 20%%\n\n'
for ((i = 0; i < 400; ++i)); do
    if grep -q ' s, log/fetch\.log: fetched 20%$' report; then exit 0; fi
    sleep 0.05
done
exit 1
END
cupola_logged fetch bash fetch 2>report || error "no report has the last line of the log: $(cat report)"
# What takes less time is silent; what fails shows its output and the log.
cupola_progress_seconds=10
cupola_logged short echo hello 2>report || error "echo failed"
[ ! -s report ] || error "a short command reports: $(cat report)"
cupola_logged failed bash -c 'echo its words; exit 3' 2>report && error "a command that failed is taken for one that has not"
grep -qx 'its words' report && grep -qF "all of its output is in $work/log/failed.log" report || error "an error is without its words: $(cat report)"

# What a bare machine gets, whatever this one has.
cupola_bare=1
cupola_packages tests
for package in g++ cmake ninja-build python3 openmpi-bin clang-format-16; do
    case " ${packages[*]} " in *" $package "*) ;; *) error "a bare machine does not get $package" ;; esac
done
# On it a command is found when its package is named, and not otherwise.
if dpkg-query -S /usr/bin/cmake >/dev/null 2>&1; then
    "$1/tests/bare_commands" commands g++
    (PATH=$work/commands && command -v tar c++ awk) >/dev/null || error "a bare machine lacks tar, c++ or awk"
    (PATH=$work/commands && command -v cmake) && error "a bare machine with g++ alone has cmake"
    "$1/tests/bare_commands" commands g++ cmake
    (PATH=$work/commands && cmake --version) >/dev/null || error "a bare machine with cmake lacks it"
fi
# A command is asked in a tree that has nothing else.
for command in tests/run tests/torture/run tests/benchmarks/run tests/gpu/pack; do
    mkdir -p "tree/$(dirname $command)" tree/cmake
    cp "$1/cmake/setup.sh" tree/cmake/
    cp "$1/$command" tree/$command
    timeout 20 tree/$command --help >said 2>&1 && [ "$(wc -l <said)" -ge 4 ] || error "$command --help: $(cat said)"
    [ "$(ls tree | xargs)" = "cmake tests" ] && [ ! -e tree/.deps ] || error "$command --help makes $(ls -A tree | xargs)"
done
exit $errors
