# SPDX-License-Identifier: Apache-2.0
#
# Finds CUDA 13's runtime and cuBLASLt, cuDNN 9 and NCCL 2, in a toolkit, in Debian's folders, or in Python's wheels, whose
# libraries have only names with a version (nvidia/cudnn/lib/libcudnn.so.9). Makes cupola::cudart, cupola::cublaslt,
# cupola::cudnn and cupola::libnccl from them. Used by Cupola's own build and, installed beside it, by its package file. Sets
# CUPOLA_CUDA_PROBLEM and CUPOLA_NCCL_PROBLEM to nothing, or to a message that names what is missing and what to install.

set(CUPOLA_CUDA_WHEELS "" CACHE PATH "The site-packages folder whose nvidia/ holds cuDNN and NCCL as wheels, where they are such")

# The search order: wheels, the toolkit, the system.
set(cupola_cuda_roots ${CMAKE_PREFIX_PATH} ${CUDAToolkit_ROOT} $ENV{CUDAToolkit_ROOT} $ENV{CUDA_PATH} $ENV{CUDA_HOME})
if(CUPOLA_CUDA_WHEELS)
    file(GLOB cupola_cuda_wheels ${CUPOLA_CUDA_WHEELS}/nvidia/*)
    list(PREPEND cupola_cuda_roots ${cupola_cuda_wheels})
endif()
if(CMAKE_CUDA_COMPILER)
    get_filename_component(cupola_nvcc "${CMAKE_CUDA_COMPILER}" REALPATH)
    get_filename_component(cupola_nvcc "${cupola_nvcc}" DIRECTORY)
    get_filename_component(cupola_nvcc "${cupola_nvcc}" DIRECTORY)
    list(APPEND cupola_cuda_roots ${cupola_nvcc})
endif()
list(APPEND cupola_cuda_roots /usr/local/cuda /usr/local /usr)

# Finds one library by its header and its files' names, and makes cupola::<target> from it; `macro` of `version_header` must
# be at least `least`. Sets `result` to nothing, or to what is missing.
function(cupola_cuda_library result title target header version_header macro least)
    string(TOUPPER ${target} variable)
    find_path(CUPOLA_${variable}_INCLUDE_DIR ${header} PATHS ${cupola_cuda_roots} NO_DEFAULT_PATH
        PATH_SUFFIXES include include/${CMAKE_LIBRARY_ARCHITECTURE} targets/x86_64-linux/include DOC "The folder that holds ${header}")
    find_file(CUPOLA_${variable}_LIBRARY NAMES ${ARGN} PATHS ${cupola_cuda_roots} NO_DEFAULT_PATH
        PATH_SUFFIXES lib64 lib lib/${CMAKE_LIBRARY_ARCHITECTURE} targets/x86_64-linux/lib DOC "${title}'s library")
    mark_as_advanced(CUPOLA_${variable}_INCLUDE_DIR CUPOLA_${variable}_LIBRARY)
    list(GET ARGN 0 file)
    if(NOT CUPOLA_${variable}_INCLUDE_DIR)
        set(${result} "${title}, whose ${header} was not found" PARENT_SCOPE)
        return()
    elseif(NOT CUPOLA_${variable}_LIBRARY)
        set(${result} "${title}, whose ${file} was not found" PARENT_SCOPE)
        return()
    endif()
    file(STRINGS ${CUPOLA_${variable}_INCLUDE_DIR}/${version_header} line REGEX "^#define ${macro} +[0-9]+")
    string(REGEX MATCH "[0-9]+$" version "${line}")
    if(version LESS least)
        set(${result} "a newer ${title} than the one in ${CUPOLA_${variable}_INCLUDE_DIR}, whose ${macro} is ${version}" PARENT_SCOPE)
        return()
    endif()
    set(${result} "" PARENT_SCOPE)
    if(NOT TARGET cupola::${target})
        if(CUPOLA_${variable}_LIBRARY MATCHES "\\.a$")
            add_library(cupola::${target} STATIC IMPORTED GLOBAL)
            set_target_properties(cupola::${target} PROPERTIES INTERFACE_LINK_LIBRARIES "pthread;dl;rt")
        else()
            add_library(cupola::${target} SHARED IMPORTED GLOBAL)
        endif()
        set_target_properties(cupola::${target} PROPERTIES IMPORTED_LOCATION ${CUPOLA_${variable}_LIBRARY})
        target_include_directories(cupola::${target} SYSTEM INTERFACE ${CUPOLA_${variable}_INCLUDE_DIR})
    endif()
endfunction()

cupola_cuda_library(cupola_cudart_problem "CUDA 13's runtime" cudart cuda_runtime_api.h cuda_runtime_api.h CUDART_VERSION 13000
    libcudart.so.13 libcudart.so)
cupola_cuda_library(cupola_cublas_problem "CUDA 13's cuBLASLt" cublaslt cublasLt.h cublas_api.h CUBLAS_VER_MAJOR 13
    libcublasLt.so.13 libcublasLt.so)
cupola_cuda_library(cupola_cudnn_problem "cuDNN 9" cudnn cudnn.h cudnn_version.h CUDNN_MAJOR 9 libcudnn.so.9 libcudnn.so)
cupola_cuda_library(cupola_nccl_problem "NCCL 2" libnccl nccl.h nccl.h NCCL_MAJOR 2 libnccl.so.2 libnccl.so)

set(CUPOLA_CUDA_PROBLEM "")
foreach(problem IN LISTS cupola_cudart_problem cupola_cublas_problem)
    if(NOT CUPOLA_CUDA_PROBLEM)
        set(CUPOLA_CUDA_PROBLEM "cupola::cuda needs ${problem}. Install NVIDIA's CUDA toolkit 13, or set CUDAToolkit_ROOT to its folder.")
    endif()
endforeach()
if(NOT CUPOLA_CUDA_PROBLEM AND (cupola_cudnn_problem OR CMAKE_DISABLE_FIND_PACKAGE_CUDNN))
    if(NOT cupola_cudnn_problem)
        set(cupola_cudnn_problem "cuDNN 9, whose cudnn.h was not found")
    endif()
    set(CUPOLA_CUDA_PROBLEM "cupola::cuda needs ${cupola_cudnn_problem}. Install NVIDIA's package cudnn9-cuda-13 or\
 `pip install nvidia-cudnn-cu13`, and then name the site-packages folder in CUPOLA_CUDA_WHEELS.")
endif()
if(NOT cupola_nccl_problem AND CMAKE_DISABLE_FIND_PACKAGE_NCCL)
    set(cupola_nccl_problem "NCCL 2, whose nccl.h was not found")
endif()
set(CUPOLA_NCCL_PROBLEM "")
if(cupola_nccl_problem)
    set(CUPOLA_NCCL_PROBLEM "cupola::nccl needs ${cupola_nccl_problem}. Install NVIDIA's package libnccl-dev or\
 `pip install nvidia-nccl-cu13`, and then name the site-packages folder in CUPOLA_CUDA_WHEELS.")
endif()
