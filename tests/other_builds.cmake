# SPDX-License-Identifier: Apache-2.0
#
# Builds and runs the suite in other ways, each a preset of CMakePresets.json and a test here, so that one summary covers
# all of them: by clang under AddressSanitizer and UndefinedBehaviorSanitizer, under ThreadSanitizer, and the backend for NVIDIA
# GPUs by nvcc. They run last and one at a time, because each uses all cores.
function(cupola_other_build preset title)
    add_test(NAME "suite ${title}" WORKING_DIRECTORY ${PROJECT_SOURCE_DIR}
        COMMAND ${CMAKE_COMMAND} --workflow --preset ${preset})
    set_tests_properties("suite ${title}" PROPERTIES LABELS other_build RUN_SERIAL TRUE TIMEOUT 3600 COST -1)
    cupola_extended("suite ${title}")
endfunction()

cupola_other_build(clang "built by clang++-16, under AddressSanitizer and UndefinedBehaviorSanitizer")
cupola_other_build(tsan "under ThreadSanitizer")

add_test(NAME "suite for CUDA, built by nvcc" COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/gpu/build.sh)
set_tests_properties("suite for CUDA, built by nvcc" PROPERTIES LABELS other_build RUN_SERIAL TRUE TIMEOUT 3600 COST -1 SKIP_RETURN_CODE 77)
cupola_extended("suite for CUDA, built by nvcc")
