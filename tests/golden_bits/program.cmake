# SPDX-License-Identifier: Apache-2.0
#
# The program golden_bits of this checkout of Cupola, whose targets exist already.
function(cupola_golden_bits)
    set(folder ${CMAKE_CURRENT_FUNCTION_LIST_DIR})
    string(TOUPPER "${CMAKE_BUILD_TYPE}" config)
    string(STRIP "${CMAKE_CXX_FLAGS} ${CMAKE_CXX_FLAGS_${config}}" flags)
    string(REGEX REPLACE " +" "," flags "${flags}")
    add_executable(golden_bits ${folder}/main.cpp ${folder}/resnet_cases.cpp ${folder}/tutorial_cases.cpp)
    target_link_libraries(golden_bits PRIVATE cupola::cupola)
    target_compile_definitions(golden_bits PRIVATE CUPOLA_GOLDEN_FLAGS="${flags}")
endfunction()
