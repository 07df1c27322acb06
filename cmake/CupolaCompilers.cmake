# SPDX-License-Identifier: Apache-2.0
#
# The compilers and platforms that Cupola is built and tested with. An older compiler cannot compile it, so it is an error
# here instead of many template errors. Another platform may work, so it is a warning.
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 12)
    message(FATAL_ERROR "Cupola needs g++ 12 or later; ${CMAKE_CXX_COMPILER} is g++ ${CMAKE_CXX_COMPILER_VERSION}")
elseif(CMAKE_CXX_COMPILER_ID STREQUAL "Clang" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 16)
    message(FATAL_ERROR
        "Cupola needs clang 16 or later; ${CMAKE_CXX_COMPILER} is clang ${CMAKE_CXX_COMPILER_VERSION}")
elseif(NOT CMAKE_CXX_COMPILER_ID MATCHES "^(GNU|Clang)$")
    message(WARNING "Cupola is tested with g++ 12 and later and with clang 16 and later, not with"
        " ${CMAKE_CXX_COMPILER_ID} ${CMAKE_CXX_COMPILER_VERSION}")
endif()
if(NOT CMAKE_SYSTEM_NAME STREQUAL "Linux" OR NOT CMAKE_SYSTEM_PROCESSOR STREQUAL "x86_64")
    message(WARNING "Cupola is tested on Linux on x86-64, not on ${CMAKE_SYSTEM_NAME} on ${CMAKE_SYSTEM_PROCESSOR}")
endif()
