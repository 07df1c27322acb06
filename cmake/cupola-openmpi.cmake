# SPDX-License-Identifier: Apache-2.0
#
# Finds Open MPI by its mpicc and makes cupola::libmpi from it: the C library alone, since its former C++ library does not
# exist in Open MPI 5. Used by Cupola's own build and, installed beside it, by its package file. Sets CUPOLA_MPI_PROBLEM to
# nothing, or to a message that names the problem and what to install.
find_program(CUPOLA_MPICC mpicc DOC "Open MPI's compiler command, which is asked for folders and libraries")
mark_as_advanced(CUPOLA_MPICC)
set(CUPOLA_MPI_PROBLEM "")
if(NOT CUPOLA_MPICC)
    set(CUPOLA_MPI_PROBLEM "cupola::mpi needs Open MPI 4.1 or later, whose mpicc was not found. Install Debian's\
 libopenmpi-dev and openmpi-bin, or name the program in CUPOLA_MPICC.")
elseif(NOT TARGET cupola::libmpi)
    foreach(part IN ITEMS incdirs libdirs libs)
        execute_process(COMMAND ${CUPOLA_MPICC} --showme:${part} OUTPUT_VARIABLE cupola_mpi_${part} ERROR_QUIET
            OUTPUT_STRIP_TRAILING_WHITESPACE RESULT_VARIABLE status)
        separate_arguments(cupola_mpi_${part})
        if(NOT status EQUAL 0)
            set(CUPOLA_MPI_PROBLEM "cupola::mpi needs Open MPI 4.1 or later, and ${CUPOLA_MPICC} is not its mpicc. Name\
 another one in CUPOLA_MPICC.")
        endif()
    endforeach()
    if(NOT CUPOLA_MPI_PROBLEM)
        add_library(cupola::libmpi INTERFACE IMPORTED GLOBAL)
        target_include_directories(cupola::libmpi SYSTEM INTERFACE ${cupola_mpi_incdirs})
        target_link_directories(cupola::libmpi INTERFACE ${cupola_mpi_libdirs})
        target_link_libraries(cupola::libmpi INTERFACE ${cupola_mpi_libs})
    endif()
endif()
