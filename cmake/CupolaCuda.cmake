# SPDX-License-Identifier: Apache-2.0
#
# CUDA as a language, for CUPOLA_CUDA: nvcc 13 and the libraries, or an error message that names the package to install.
# Included by CMakeLists.txt. As a sub-project, Cupola leaves compiler and architectures to its parent, and only finds the
# libraries.
option(CUPOLA_ENABLE_NCCL "Offer cupola::nccl, where CUPOLA_CUDA is on: averaging by NCCL" ON)

if(PROJECT_IS_TOP_LEVEL)
    if(NOT CMAKE_CUDA_COMPILER)
        file(GLOB nvcc_of_wheels ${CUPOLA_CUDA_WHEELS}/nvidia/cu*/bin)
        find_program(CMAKE_CUDA_COMPILER NAMES $ENV{CUDACXX} nvcc PATHS ${CUDAToolkit_ROOT}/bin /usr/local/cuda/bin ${nvcc_of_wheels})
    endif()
    if(NOT EXISTS "${CMAKE_CUDA_COMPILER}")
        message(FATAL_ERROR "CUPOLA_CUDA needs nvcc 13, which was not found. Install NVIDIA's CUDA toolkit 13, and set\
 CMAKE_CUDA_COMPILER to its nvcc where that is not on the path. To build without it, use -DCUPOLA_CUDA=OFF.")
    endif()
endif()

include(cupola-cuda-libraries)
if(CUPOLA_CUDA_PROBLEM)
    message(FATAL_ERROR "${CUPOLA_CUDA_PROBLEM} To build without it, use -DCUPOLA_CUDA=OFF.")
elseif(CUPOLA_NCCL_PROBLEM AND CUPOLA_ENABLE_NCCL)
    message(FATAL_ERROR "${CUPOLA_NCCL_PROBLEM} To build without it, use -DCUPOLA_ENABLE_NCCL=OFF.")
endif()

if(PROJECT_IS_TOP_LEVEL)
    # Machine code for the A100, the H100 and the H200, and PTX for later GPUs.
    if(NOT CMAKE_CUDA_ARCHITECTURES AND "$ENV{CUDAARCHS}" STREQUAL "")
        set(CMAKE_CUDA_ARCHITECTURES "80-real;90" CACHE STRING "The GPUs that are compiled for")
    endif()
    # nvcc uses the same host compiler as the other files, so that a program has one C++ library.
    if(NOT CMAKE_CUDA_HOST_COMPILER AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
        set(CMAKE_CUDA_HOST_COMPILER ${CMAKE_CXX_COMPILER})
    endif()
    enable_language(CUDA)
    if(NOT CMAKE_CUDA_COMPILER_ID STREQUAL "NVIDIA" OR CMAKE_CUDA_COMPILER_VERSION VERSION_LESS 13)
        message(FATAL_ERROR "CUPOLA_CUDA needs nvcc 13 or later; ${CMAKE_CUDA_COMPILER} is ${CMAKE_CUDA_COMPILER_ID}'s"
            " ${CMAKE_CUDA_COMPILER_VERSION}. To build without it, use -DCUPOLA_CUDA=OFF.")
    endif()
    # The runtime that cupola::cuda links, and not nvcc's in addition: the shared one, unless CUPOLA_CUDART_LIBRARY names an archive.
    if(CUPOLA_CUDART_LIBRARY MATCHES "\\.a$")
        set(CMAKE_CUDA_RUNTIME_LIBRARY None)
    else()
        set(CMAKE_CUDA_RUNTIME_LIBRARY Shared)
    endif()
endif()
