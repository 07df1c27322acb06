# SPDX-License-Identifier: Apache-2.0
#
# Builds and runs the suite in other ways, each a preset of CMakePresets.json and a test here, so that one summary covers
# all of them: by clang under AddressSanitizer and UndefinedBehaviorSanitizer, under ThreadSanitizer, and the backend for NVIDIA
# GPUs by nvcc. Each uses all cores where it can, but configures, links and ends on one, and some of its tests wait. So they begin first, two
# of them at a time, and the other tests run beside them. On two cores each claims one of the four processors of `tests/run`: ctest starts
# what fits, so one that needs several at the same moment would begin last.
cmake_host_system_information(RESULT half_of_processors QUERY NUMBER_OF_LOGICAL_CORES)
math(EXPR half_of_processors "(${half_of_processors} + 1) / 2")
function(cupola_other_build name cost lock)
    add_test(NAME ${name} WORKING_DIRECTORY ${PROJECT_SOURCE_DIR} COMMAND ${ARGN})
    set_tests_properties(${name} PROPERTIES LABELS other_build PROCESSORS ${half_of_processors} TIMEOUT 3600 COST ${cost} RESOURCE_LOCK ${lock}_builds)
    cupola_extended(${name})
endfunction()

cupola_other_build("suite built by clang++-16, under AddressSanitizer and UndefinedBehaviorSanitizer" 400 sanitizer
    ${CMAKE_COMMAND} --workflow --preset clang)
cupola_other_build("suite under ThreadSanitizer" 300 sanitizer ${CMAKE_COMMAND} --workflow --preset tsan)
cupola_other_build("suite for CUDA, built by nvcc" 400 cuda ${CMAKE_CURRENT_SOURCE_DIR}/gpu/build.sh)
set_tests_properties("suite for CUDA, built by nvcc" PROPERTIES SKIP_RETURN_CODE 77)
