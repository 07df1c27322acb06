# SPDX-License-Identifier: Apache-2.0
#
# cupola_add_compiled(NAME [OPTIONS OPTION...]): a static library of everything that does not depend on a user's network, for programs
# that are compiled separately, by CUPOLA_SEPARATE_COMPILATION, which linking to it defines. It is built where a target links to it, with
# the flags of the folder that calls this function and the OPTIONS; files that link to it have the same, since the flags are part of the
# names of Cupola's functions. cupola::compiled is one without options. In the checkout and in an installed package.
set(CUPOLA_COMPILED_SOURCES ${CMAKE_CURRENT_LIST_DIR}/compiled)

function(cupola_add_compiled name)
    cmake_parse_arguments(PARSE_ARGV 1 given "" "" "OPTIONS")
    if(given_UNPARSED_ARGUMENTS)
        message(FATAL_ERROR "cupola_add_compiled(${name} ...) takes OPTIONS and nothing else, not ${given_UNPARSED_ARGUMENTS}")
    endif()
    # The parts of src.hpp, side by side.
    add_library(${name} STATIC EXCLUDE_FROM_ALL ${CUPOLA_COMPILED_SOURCES}/functions.cpp ${CUPOLA_COMPILED_SOURCES}/float.cpp
        ${CUPOLA_COMPILED_SOURCES}/bfloat16.cpp)
    # Optimised even in a build without a type, because the library contains the kernels.
    target_compile_options(${name} PRIVATE $<$<CONFIG:>:-O2> ${given_OPTIONS})
    target_compile_definitions(${name} PUBLIC CUPOLA_SEPARATE_COMPILATION)
    target_link_libraries(${name} PUBLIC cupola::host)
    set_target_properties(${name} PROPERTIES POSITION_INDEPENDENT_CODE ON)
endfunction()

# The targets cupola::compiled and, as it was called before, cupola::ops.
function(cupola_add_compiled_targets)
    if(NOT TARGET cupola_compiled)
        cupola_add_compiled(cupola_compiled)
        add_library(cupola::compiled ALIAS cupola_compiled)
        add_library(cupola::ops ALIAS cupola_compiled)
    endif()
endfunction()
