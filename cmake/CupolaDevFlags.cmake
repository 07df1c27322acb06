# SPDX-License-Identifier: Apache-2.0
#
# The flags of Cupola's own examples and tests. They are properties of this one target, which no exported target links to,
# so they never reach a consumer. The presets for development make warnings errors (CMAKE_COMPILE_WARNING_AS_ERROR); the
# preset of examples/run does not, because a newer compiler may have new warnings.
add_library(cupola_dev_flags INTERFACE)
target_compile_options(cupola_dev_flags INTERFACE
    $<$<COMPILE_LANGUAGE:CXX>:-Wall -Wextra -Wpedantic -Wconversion -Wshadow>
    $<$<COMPILE_LANGUAGE:CUDA>:-Xcompiler=-Wall,-Wextra>
    # g++ 12 reports the bytes of a moved short std::string as out of bounds (GCC's bug 105329); with a precompiled header
    # such warnings about its own library are no longer suppressed.
    $<$<COMPILE_LANG_AND_ID:CXX,GNU>:-Wno-array-bounds -Wno-restrict -Wno-stringop-overflow>
    # g++ collects garbage from 512 MB on instead of 128 MB: this saves a seventh of the time of a test's unit.
    $<$<AND:$<COMPILE_LANG_AND_ID:CXX,GNU>,$<BOOL:${CUPOLA_BUILD_TESTS}>>:--param=ggc-min-heapsize=524288>
    # For nvcc's files too, because the instruction set is part of the namespace's name.
    $<$<BOOL:${CUPOLA_NATIVE}>:$<IF:$<COMPILE_LANGUAGE:CUDA>,-Xcompiler=-march=native,-march=native>>)
