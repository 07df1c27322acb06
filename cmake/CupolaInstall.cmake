# SPDX-License-Identifier: Apache-2.0
#
# Installs the headers, the CMake package (one file of targets per component) and the pkg-config files. All of them are
# independent of the architecture and are in share/ and include/.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

set(package_dir ${CMAKE_INSTALL_DATADIR}/cmake/cupola)
foreach(component IN ITEMS core host data tensorboard onnx mpi cuda nccl)
    if(TARGET cupola_${component})
        install(TARGETS cupola_${component} EXPORT cupola_${component} FILE_SET HEADERS FILE_SET definitions)
        install(EXPORT cupola_${component} NAMESPACE cupola:: FILE cupola-${component}.cmake DESTINATION ${package_dir})
    endif()
endforeach()

# cupola::compiled is built in the project that asks for it.
if(TARGET cupola_compiled)
    install(FILES ${PROJECT_SOURCE_DIR}/cmake/cupola-compiled.cmake DESTINATION ${package_dir})
    install(DIRECTORY ${PROJECT_SOURCE_DIR}/cmake/compiled DESTINATION ${package_dir})
endif()

configure_package_config_file(cmake/cupola-config.cmake.in cupola-config.cmake INSTALL_DESTINATION ${package_dir}
    NO_SET_AND_CHECK_MACRO)
write_basic_package_version_file(cupola-config-version.cmake COMPATIBILITY SameMinorVersion ARCH_INDEPENDENT)
install(FILES
    ${CMAKE_CURRENT_BINARY_DIR}/cupola-config.cmake ${CMAKE_CURRENT_BINARY_DIR}/cupola-config-version.cmake
    ${PROJECT_SOURCE_DIR}/cmake/cupola-cuda-libraries.cmake
    ${PROJECT_SOURCE_DIR}/cmake/cupola-openmpi.cmake
    ${PROJECT_SOURCE_DIR}/cmake/cupola-onednn.cmake
    ${PROJECT_SOURCE_DIR}/cmake/cupola-protozero.cmake
    DESTINATION ${package_dir})

# pkg-config has no notion of a compiler, and oneDNN has no pkg-config file: a oneDNN that was found in its own folder is
# written into the file, except the checkout's, since an installed Cupola has no path into the checkout. oneDNN is then taken
# from the folder that Cupola is installed to, or from the folder in the variable `onednn`.
set(pc_core cupola)
set(pc_host cupola-host)
set(pc_data cupola-data)
set(pc_tensorboard cupola-tensorboard)
set(pc_onnx cupola-onnx)
set(pc_compiled cupola-compiled)
if(TARGET cupola_host)
    get_target_property(dnnl_include DNNL::dnnl INTERFACE_INCLUDE_DIRECTORIES)
    list(GET dnnl_include 0 dnnl_include)
    cupola_onednn_library(dnnl_lib)
    get_filename_component(dnnl_lib ${dnnl_lib} DIRECTORY)
    get_filename_component(pc_onednn ${dnnl_include} DIRECTORY)
    if(dnnl_include IN_LIST CMAKE_CXX_IMPLICIT_INCLUDE_DIRECTORIES)
        set(pc_onednn_cflags "")
        set(pc_onednn_libs "-ldnnl")
    else()
        file(RELATIVE_PATH dnnl_lib ${pc_onednn} ${dnnl_lib})
        set(pc_onednn_cflags "-isystem \${onednn}/include")
        set(pc_onednn_libs "-L\${onednn}/${dnnl_lib} -ldnnl -Wl,-rpath,\${onednn}/${dnnl_lib}")
    endif()
    foreach(own IN ITEMS ${PROJECT_SOURCE_DIR} ${PROJECT_BINARY_DIR})
        cmake_path(IS_PREFIX own ${pc_onednn} NORMALIZE inside)
        if(inside)
            set(pc_onednn "\${pcfiledir}/../..")
        endif()
    endforeach()
endif()
foreach(component IN ITEMS core host data tensorboard onnx compiled)
    if(TARGET cupola_${component})
        configure_file(cmake/${pc_${component}}.pc.in ${pc_${component}}.pc @ONLY)
        install(FILES ${CMAKE_CURRENT_BINARY_DIR}/${pc_${component}}.pc DESTINATION ${CMAKE_INSTALL_DATADIR}/pkgconfig)
    endif()
endforeach()
