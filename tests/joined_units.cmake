# SPDX-License-Identifier: Apache-2.0
#
# Several tests in one translation unit, which halves the compilers' work: shared code, such as std::vector's functions, is
# compiled once. Each file is in its own namespace, after the headers of all of them, so that equal names do not collide. The functions of the
# files themselves are not optimised, whatever the headers are: they run for a moment, and take a quarter of the compiler's time.
set(cupola_without_optimisation "#if defined(__clang__)
#pragma clang optimize off
#elif defined(__GNUC__)
#pragma GCC optimize(\"O0\")
#endif")

# cupola_headers_of(HEADER FILE...): writes a header with the includes of the files, each under the conditions that it stands under.
function(cupola_headers_of header)
    set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${ARGN})
    set(text "#pragma once\n")
    foreach(file IN LISTS ARGN)
        get_filename_component(path ${file} ABSOLUTE)
        get_filename_component(folder ${path} DIRECTORY)
        file(STRINGS ${path} lines REGEX "^#(include|if|el|endif)")
        foreach(line IN LISTS lines)
            string(REGEX REPLACE "^#include \"([^\"]+)\".*" "${folder}/\\1" beside "${line}")
            if(EXISTS ${beside})
                set(line "#include \"${beside}\"")
            endif()
            string(APPEND text "${line}\n")
        endforeach()
    endforeach()
    file(CONFIGURE OUTPUT ${header} CONTENT "${text}" @ONLY)
endfunction()

# cupola_join(TARGET UNITS FILE...): CMake joins these sources of the target to so many units, neighbours in the list to the same one. A file
# remains one if it has a comment that begins with "A unit of its own". May be called again for other sources of the target.
function(cupola_join target units)
    get_property(joined TARGET ${target} PROPERTY cupola_joined)
    get_property(first TARGET ${target} PROPERTY cupola_units)
    list(LENGTH ARGN files)
    set(count 0)
    foreach(file IN LISTS ARGN)
        file(STRINGS ${file} alone LIMIT_COUNT 1 REGEX "^// A unit of its own")
        if(NOT alone)
            math(EXPR unit "0${first} + ${count} * ${units} / ${files}")
            math(EXPR count "${count} + 1")
            set_source_files_properties(${file} PROPERTIES UNITY_GROUP ${unit})
        endif()
    endforeach()
    math(EXPR units "0${first} + ${units}")
    list(APPEND joined ${ARGN})
    set(header ${CMAKE_CURRENT_BINARY_DIR}/${target}.hpp)
    cupola_headers_of(${header} ${joined})
    set_target_properties(${target} PROPERTIES cupola_joined "${joined}" cupola_units ${units}
        UNITY_BUILD ON UNITY_BUILD_MODE GROUP UNITY_BUILD_UNIQUE_ID cupola_file
        UNITY_BUILD_CODE_BEFORE_INCLUDE "#include \"${header}\"\n${cupola_without_optimisation}\nnamespace cupola_file {"
        UNITY_BUILD_CODE_AFTER_INCLUDE "}  // namespace cupola_file")
endfunction()
