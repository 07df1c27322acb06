# SPDX-License-Identifier: Apache-2.0
#
# The targets. Each header belongs to the target that carries the libraries which it reaches: what includes oneDNN,
# OpenMP or Thrust, itself or through another header, to cupola_host; what includes libarchive or libjpeg to
# cupola_data; all the rest to cupola_core. So no list of headers has to be kept.

set(include_dir ${PROJECT_SOURCE_DIR}/include)
file(GLOB_RECURSE headers CONFIGURE_DEPENDS RELATIVE ${include_dir} ${include_dir}/cupola/*.hpp)

# The headers that include a file which matches `pattern`, or one of the headers that do.
function(cupola_headers_that_reach pattern result)
    set(reached "")
    set(grown TRUE)
    while(grown)
        set(grown FALSE)
        foreach(header IN LISTS headers)
            if(header IN_LIST reached)
                continue()
            endif()
            file(STRINGS ${include_dir}/${header} includes REGEX "^#include <")
            foreach(line IN LISTS includes)
                string(REGEX REPLACE "^#include <([^>]*)>.*" "\\1" included "${line}")
                if(included MATCHES "${pattern}" OR included IN_LIST reached)
                    list(APPEND reached ${header})
                    set(grown TRUE)
                    break()
                endif()
            endforeach()
        endforeach()
    endwhile()
    set(${result} ${reached} PARENT_SCOPE)
endfunction()

cupola_headers_that_reach("^(oneapi/dnnl/|dnnl|omp\\.h$|thrust/)" host_headers)
cupola_headers_that_reach("^(archive\\.h$|archive_entry\\.h$|jpeglib\\.h$)" data_headers)
set(core_headers ${headers})
list(REMOVE_ITEM core_headers ${host_headers} ${data_headers})
list(REMOVE_ITEM data_headers ${host_headers})

function(cupola_add_target name)
    add_library(cupola_${name} INTERFACE)
    add_library(cupola::${name} ALIAS cupola_${name})
    set_target_properties(cupola_${name} PROPERTIES EXPORT_NAME ${name} VERIFY_INTERFACE_HEADER_SETS ${PROJECT_IS_TOP_LEVEL})
    if(NOT PROJECT_IS_TOP_LEVEL)
        set_target_properties(cupola_${name} PROPERTIES SYSTEM ON)  # a parent's warnings are not for these headers
    endif()
    list(TRANSFORM ${name}_headers PREPEND ${include_dir}/ OUTPUT_VARIABLE files)
    target_sources(cupola_${name} INTERFACE FILE_SET HEADERS BASE_DIRS ${include_dir} FILES ${files})
endfunction()

set(THREADS_PREFER_PTHREAD_FLAG ON)
find_package(Threads REQUIRED)
cupola_add_target(core)
target_compile_features(cupola_core INTERFACE cxx_std_20)
# The vector loops are marked `#pragma omp simd`, which needs no OpenMP runtime.
target_compile_options(cupola_core INTERFACE $<$<COMPILE_LANG_AND_ID:CXX,GNU,Clang>:-fopenmp-simd>)
target_link_libraries(cupola_core INTERFACE Threads::Threads)

add_library(cupola INTERFACE)
add_library(cupola::cupola ALIAS cupola)
target_link_libraries(cupola INTERFACE cupola_core)

if(CUPOLA_ENABLE_HOST)
    find_package(OpenMP REQUIRED COMPONENTS CXX)
    # A oneDNN 3 of the system's is found before the one that cmake/setup.sh unpacks; clang needs the one linked for it.
    if(CMAKE_CXX_COMPILER_ID MATCHES "Clang")
        set(CUPOLA_ONEDNN_HINTS ${PROJECT_SOURCE_DIR}/.deps/onednn-clang)
    else()
        set(CUPOLA_ONEDNN_PATHS ${PROJECT_SOURCE_DIR}/.deps/onednn)
    endif()
    include(cupola-onednn)
    if(CUPOLA_ONEDNN_PROBLEM)
        message(FATAL_ERROR "${CUPOLA_ONEDNN_PROBLEM} Without it, -DCUPOLA_ENABLE_HOST=OFF.")
    endif()
    include(cupola-thrust)
    if(NOT CUPOLA_THRUST_INCLUDE_DIR)
        message(FATAL_ERROR "${CUPOLA_THRUST_PROBLEM} Without it, -DCUPOLA_ENABLE_HOST=OFF.")
    endif()
    cupola_add_target(host)
    target_link_libraries(cupola_host INTERFACE cupola_core OpenMP::OpenMP_CXX DNNL::dnnl cupola::thrust_omp)
    # oneDNN's own need of an OpenMP library is to be met from the program's list of folders: see cupola-onednn.cmake.
    target_link_options(cupola_host INTERFACE $<$<CXX_COMPILER_ID:Clang>:LINKER:--disable-new-dtags>)
    target_link_libraries(cupola INTERFACE cupola_host)
endif()

if(CUPOLA_ENABLE_DATA)
    find_package(LibArchive REQUIRED)
    find_package(JPEG REQUIRED)
    cupola_add_target(data)
    target_link_libraries(cupola_data INTERFACE cupola_core LibArchive::LibArchive JPEG::JPEG)
    target_link_libraries(cupola INTERFACE cupola_data)
endif()
