# SPDX-License-Identifier: Apache-2.0
#
# Finds Thrust (a package of the system's or a CUDA toolkit's) and makes cupola::thrust_omp of it: the headers, and the
# OpenMP system as the device. Used by Cupola's own build and, installed beside it, by its package file.
find_path(CUPOLA_THRUST_INCLUDE_DIR thrust/version.h DOC "The folder that holds thrust/version.h")
find_path(CUPOLA_THRUST_INCLUDE_DIR thrust/version.h PATHS /usr/local/cuda /opt/cuda PATH_SUFFIXES include/cccl include)
mark_as_advanced(CUPOLA_THRUST_INCLUDE_DIR)
set(CUPOLA_THRUST_PROBLEM "cupola::host needs Thrust, whose thrust/version.h was not found. Install Debian's\
 libthrust-dev or a CUDA toolkit, or name the folder in CUPOLA_THRUST_INCLUDE_DIR.")
if(CUPOLA_THRUST_INCLUDE_DIR AND NOT TARGET cupola::thrust_omp)
    add_library(cupola::thrust_omp INTERFACE IMPORTED GLOBAL)
    target_include_directories(cupola::thrust_omp SYSTEM INTERFACE ${CUPOLA_THRUST_INCLUDE_DIR})
    target_compile_definitions(cupola::thrust_omp INTERFACE THRUST_DEVICE_SYSTEM=THRUST_DEVICE_SYSTEM_OMP)
endif()
