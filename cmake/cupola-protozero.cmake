# SPDX-License-Identifier: Apache-2.0
#
# Finds protozero (header-only) and makes cupola::protozero from it. Used by Cupola's own build and, installed beside it,
# by its package file.
find_path(CUPOLA_PROTOZERO_INCLUDE_DIR protozero/pbf_writer.hpp DOC "The folder that holds protozero/pbf_writer.hpp")
mark_as_advanced(CUPOLA_PROTOZERO_INCLUDE_DIR)
set(CUPOLA_PROTOZERO_PROBLEM "cupola::tensorboard and cupola::onnx need protozero, whose protozero/pbf_writer.hpp was not found. Install\
 Debian's libprotozero-dev, or name the folder in CUPOLA_PROTOZERO_INCLUDE_DIR.")
if(CUPOLA_PROTOZERO_INCLUDE_DIR AND NOT TARGET cupola::protozero)
    add_library(cupola::protozero INTERFACE IMPORTED GLOBAL)
    target_include_directories(cupola::protozero SYSTEM INTERFACE ${CUPOLA_PROTOZERO_INCLUDE_DIR})
endif()
