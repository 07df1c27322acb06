# SPDX-License-Identifier: Apache-2.0
#
# Tests of averaging by NCCL with its stand-in and the emulator's streams: CUDA, cuDNN and NCCL need not be installed. Included by
# ../../CMakeLists.txt. These tests run no kernels, so they are part of builds with a sanitizer, which cannot follow the fibres.
file(GLOB nccl_tests CONFIGURE_DEPENDS RELATIVE ${CMAKE_CURRENT_SOURCE_DIR} processes/nccl*_test.cpp processes/nccl/*_test.cpp)
list(APPEND nccl_tests gpu/emulator/tests/nccl_test.cpp)
set(emulated gpu/emulator/block.cpp gpu/emulator/nccl.cpp gpu/emulator/pages.cpp gpu/emulator/runtime.cpp gpu/emulator/shared_memory.cpp)
set_source_files_properties(${emulated} PROPERTIES SKIP_PRECOMPILE_HEADERS TRUE)
add_executable(test_nccl ${nccl_tests} ${emulated})
cupola_join(test_nccl 1 ${nccl_tests})
target_include_directories(test_nccl BEFORE PRIVATE ${CMAKE_CURRENT_SOURCE_DIR}/gpu/emulator/include)
cupola_quick_program(test_nccl)
target_link_libraries(test_nccl PRIVATE cupola_test_main)
foreach(file IN LISTS nccl_tests)
    string(REGEX REPLACE "_test\\.cpp$" "" name ${file})
    add_test(NAME emulated/${name} COMMAND test_nccl --source-file=*/tests/${file})
    set_tests_properties(emulated/${name} PROPERTIES LABELS suite TIMEOUT 300 WORKING_DIRECTORY ${PROJECT_SOURCE_DIR})
endforeach()
# Most of their time they wait for deadlines, so they run beside other tests, and the longest not beside those of mpi/ that wait too.
set_tests_properties(emulated/processes/nccl/nccl_group emulated/processes/nccl/bucket_all_reduce PROPERTIES COST 12)
set_tests_properties(emulated/processes/nccl/nccl_group PROPERTIES COST 30 RESOURCE_LOCK waiting)
if(TARGET quick_tests)
    add_dependencies(quick_tests test_nccl)
endif()
