# SPDX-License-Identifier: Apache-2.0
#
# The flags of Cupola's own examples and tests. They live on this one target, which nothing links to that is exported,
# so they never reach a consumer. The presets for development make warnings errors (CMAKE_COMPILE_WARNING_AS_ERROR); the
# one of examples/run does not, for a compiler newer than ours may know new warnings.
add_library(cupola_dev_flags INTERFACE)
target_compile_options(cupola_dev_flags INTERFACE
    $<$<COMPILE_LANGUAGE:CXX>:-Wall -Wextra -Wpedantic -Wconversion -Wshadow>
    $<$<COMPILE_LANGUAGE:CUDA>:-Xcompiler=-Wall,-Wextra>
    # g++ 12 takes the bytes of a moved short std::string for out of bounds (GCC's bug 105329), and a precompiled header no
    # longer hides that it says so of its own library.
    $<$<COMPILE_LANG_AND_ID:CXX,GNU>:-Wno-array-bounds -Wno-restrict -Wno-stringop-overflow>
    # g++ looks for memory that it can use again at 512 MB, not at 128: a seventh of the time of a test's unit.
    $<$<AND:$<COMPILE_LANG_AND_ID:CXX,GNU>,$<BOOL:${CUPOLA_BUILD_TESTS}>>:--param=ggc-min-heapsize=524288>
    # nvcc's files too: the instruction set is in the name of the namespace.
    $<$<BOOL:${CUPOLA_NATIVE}>:$<IF:$<COMPILE_LANGUAGE:CUDA>,-Xcompiler=-march=native,-march=native>>)
