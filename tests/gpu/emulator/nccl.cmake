# SPDX-License-Identifier: Apache-2.0
#
# Averaging by NCCL over its stand-in and the emulator's streams: no CUDA, cuDNN or NCCL has to be there. Included by
# ../../CMakeLists.txt. None of them runs a kernel, whose fibres a sanitizer would not follow.
file(GLOB nccl_tests CONFIGURE_DEPENDS RELATIVE ${CMAKE_CURRENT_SOURCE_DIR} parallel/nccl*_test.cpp parallel/nccl/*_test.cpp)
list(APPEND nccl_tests gpu/emulator/tests/nccl_test.cpp)
add_executable(test_nccl ${nccl_tests} gpu/emulator/block.cpp gpu/emulator/nccl.cpp gpu/emulator/runtime.cpp)
target_include_directories(test_nccl BEFORE PRIVATE ${CMAKE_CURRENT_SOURCE_DIR}/gpu/emulator/include)
cupola_test_settings(test_nccl)
target_link_libraries(test_nccl PRIVATE cupola_test_main)
foreach(file IN LISTS nccl_tests)
    string(REGEX REPLACE "_test\\.cpp$" "" name ${file})
    add_test(NAME emulated/${name} COMMAND test_nccl --source-file=*/tests/${file})
    set_tests_properties(emulated/${name} PROPERTIES LABELS suite TIMEOUT 300 WORKING_DIRECTORY ${PROJECT_SOURCE_DIR})
endforeach()
# They wait for deadlines most of the time, beside others.
set_tests_properties(emulated/parallel/nccl_group emulated/parallel/nccl/bucket_all_reduce PROPERTIES COST 12)
if(TARGET quick_tests)
    add_dependencies(quick_tests test_nccl)
endif()
