# SPDX-License-Identifier: Apache-2.0
#
# Finds oneDNN 3 and checks that it uses the compiler's OpenMP runtime: two runtimes in one process are two teams of
# threads that compete for the cores. Used by Cupola's own build and, installed beside it, by its package file. Sets
# CUPOLA_ONEDNN_PROBLEM to nothing, or to a message that names the problem and what to install.

# The path of oneDNN's library, whatever its build type is: Debian's packages have the type None. Not found where it states none.
function(cupola_onednn_library result)
    get_target_property(configurations DNNL::dnnl IMPORTED_CONFIGURATIONS)
    list(TRANSFORM configurations PREPEND _)
    foreach(configuration IN ITEMS "" _RELEASE _RELWITHDEBINFO ${configurations})
        get_target_property(library DNNL::dnnl IMPORTED_LOCATION${configuration})
        if(library)
            break()
        endif()
    endforeach()
    set(${result} "${library}" PARENT_SCOPE)
endfunction()

function(cupola_onednn_problem result)
    set(install "Install oneDNN 3: a package of the system's, or `DEB_PYTHON_INSTALL_LAYOUT=deb python3 -m pip install\
 --ignore-installed --prefix onednn onednn-cpu-gomp==2023.2.0 onednn-devel-cpu-gomp==2023.2.0` and that folder in\
 CMAKE_PREFIX_PATH")
    set(${result} "" PARENT_SCOPE)
    if(NOT TARGET DNNL::dnnl)
        set(found "")
        if(DNNL_CONSIDERED_VERSIONS)
            set(found " (found and too old: ${DNNL_CONSIDERED_VERSIONS})")
        endif()
        set(${result} "cupola::host needs oneDNN 3, which was not found${found}. ${install}." PARENT_SCOPE)
        return()
    endif()
    if(DEFINED DNNL_CPU_THREADING_RUNTIME AND NOT DNNL_CPU_THREADING_RUNTIME STREQUAL "OMP")
        set(${result} "cupola::host needs a oneDNN 3 that was built with OpenMP; the one in ${DNNL_DIR} runs on\
 ${DNNL_CPU_THREADING_RUNTIME}. ${install}." PARENT_SCOPE)
        return()
    endif()
    if(NOT CMAKE_CXX_COMPILER_ID MATCHES "Clang")
        return()
    endif()
    cupola_onednn_library(library)
    if(NOT library OR NOT EXISTS "${library}" OR NOT CMAKE_READELF)
        return()
    endif()
    execute_process(COMMAND ${CMAKE_READELF} -d ${library} OUTPUT_VARIABLE needed ERROR_QUIET)
    if(needed MATCHES "libgomp")
        get_filename_component(folder "${library}" REALPATH)
        get_filename_component(folder "${folder}" DIRECTORY)
        get_filename_component(beside "${folder}/libgomp.so.1" REALPATH)
        if(NOT EXISTS "${beside}" OR NOT beside MATCHES "libomp[^/]*$")
            # The whole folder of oneDNN, with CMake's files, and the place of its libraries in it.
            get_filename_component(prefix "${DNNL_DIR}/../../.." REALPATH)
            file(RELATIVE_PATH inside "${prefix}" "${folder}")
            execute_process(COMMAND ${CMAKE_CXX_COMPILER} -print-file-name=libomp.so.5 OUTPUT_VARIABLE libomp
                OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
            if(NOT IS_ABSOLUTE "${libomp}")
                set(libomp "<the folder of LLVM's libraries>/libomp.so.5")
            endif()
            # CMake leaves lines with spaces before them as they are.
            set(${result} "clang's OpenMP is LLVM's libomp, but the oneDNN in ${folder} runs on g++'s libgomp: a program\
 would hold two OpenMP runtimes. Give LLVM's library both names in a copy of oneDNN:\n  cp -r ${prefix} onednn-clang\n\
  ln -s ${libomp} onednn-clang/${inside}/libgomp.so.1\nand name the copy in CMAKE_PREFIX_PATH, or in DNNL_DIR if you give\
 that; or install a oneDNN 3 built for libomp or libiomp5; or compile with g++." PARENT_SCOPE)
        endif()
    endif()
endfunction()

find_package(DNNL 3 CONFIG QUIET HINTS ${CUPOLA_ONEDNN_HINTS} PATHS ${CUPOLA_ONEDNN_PATHS})
cupola_onednn_problem(CUPOLA_ONEDNN_PROBLEM)
if(CUPOLA_ONEDNN_PROBLEM)
    unset(DNNL_DIR CACHE)  # the next call looks again, in a CMAKE_PREFIX_PATH that may have changed
endif()
