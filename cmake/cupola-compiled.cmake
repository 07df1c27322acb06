# SPDX-License-Identifier: Apache-2.0
#
# cupola_add_compiled(NAME [OPTIONS OPTION...]): a static library of everything that does not depend on a user's network, for programs
# that are compiled separately, by CUPOLA_SEPARATE_COMPILATION, which linking to it defines. It is built where a target links to it, with
# the flags of the folder that calls this function and the OPTIONS; files that link to it have the same, since the flags are part of the
# names of Cupola's functions. cupola::compiled is one without options. In the checkout and in an installed package. Where there is
# cupola::mpi, NAME_mpi has the definitions of cupola/mpi.hpp, and whatever links to NAME links to it.

function(cupola_add_compiled name)
    cmake_parse_arguments(PARSE_ARGV 1 given "" "" "OPTIONS")
    if(given_UNPARSED_ARGUMENTS)
        message(FATAL_ERROR "cupola_add_compiled(${name} ...) takes OPTIONS and nothing else, not ${given_UNPARSED_ARGUMENTS}")
    endif()
    # The parts of src.hpp, side by side. A variable of this file would not be set in every folder that calls the function.
    set(sources ${CMAKE_CURRENT_FUNCTION_LIST_DIR}/compiled)
    add_library(${name} STATIC EXCLUDE_FROM_ALL ${sources}/functions.cpp ${sources}/float.cpp ${sources}/bfloat16.cpp)
    # Optimised even in a build without a type, because the library contains the kernels.
    target_compile_options(${name} PRIVATE $<$<CONFIG:>:-O2> ${given_OPTIONS})
    target_compile_definitions(${name} PUBLIC CUPOLA_SEPARATE_COMPILATION)
    target_link_libraries(${name} PUBLIC cupola::host)
    set_target_properties(${name} PROPERTIES POSITION_INDEPENDENT_CODE ON)
    cupola_add_compiled_mpi(${name} ${given_OPTIONS})
endfunction()

# Adds NAME_mpi to the library NAME, if there is MPI and it has none.
function(cupola_add_compiled_mpi name)
    if(NOT TARGET cupola::libmpi OR TARGET ${name}_mpi)
        return()
    endif()
    # A library of its own, from which the linker takes nothing for a program without cupola::mpi; such a program does not load MPI.
    add_library(${name}_mpi STATIC EXCLUDE_FROM_ALL ${CMAKE_CURRENT_FUNCTION_LIST_DIR}/compiled/mpi.cpp)
    target_compile_options(${name}_mpi PRIVATE $<$<CONFIG:>:-O2> ${ARGN})
    target_include_directories(${name}_mpi SYSTEM PRIVATE $<TARGET_PROPERTY:cupola::libmpi,INTERFACE_INCLUDE_DIRECTORIES>)
    target_link_libraries(${name}_mpi PRIVATE ${name} INTERFACE -Wl,--push-state,--as-needed cupola::libmpi -Wl,--pop-state)
    set_target_properties(${name}_mpi PROPERTIES POSITION_INDEPENDENT_CODE ON)
    target_link_libraries(${name} INTERFACE $<LINK_ONLY:${name}_mpi>)
endfunction()

# The targets cupola::compiled and, as it was called before, cupola::ops.
function(cupola_add_compiled_targets)
    if(NOT TARGET cupola_compiled)
        cupola_add_compiled(cupola_compiled)
        add_library(cupola::compiled ALIAS cupola_compiled)
        add_library(cupola::ops ALIAS cupola_compiled)
    endif()
    cupola_add_compiled_mpi(cupola_compiled)  # of a project that has asked for mpi after it
endfunction()
