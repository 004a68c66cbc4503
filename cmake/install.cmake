# SPDX-License-Identifier: Apache-2.0
#
# What `cmake --install` puts where, and the package that find_package(slipstream) reads:
#
#   slipstream::core         strategies, codecs, the simulated world: no torch
#   slipstream::slipstream   core and the torch edges: Session, join()
#   slipstream::cli          the command line as a function: run_cli()
#
# The aliases give the same names to targets built in this tree. The libraries are static, so what they link privately
# is needed once more by whoever links them; slipstreamConfig.cmake finds it.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

set(SLIPSTREAM_PACKAGE_DIR ${CMAKE_INSTALL_LIBDIR}/cmake/slipstream)
set(SLIPSTREAM_LIBRARIES slipstream_core)
set_target_properties(slipstream_core PROPERTIES EXPORT_NAME core)
add_library(slipstream::core ALIAS slipstream_core)
target_compile_features(slipstream_core PUBLIC cxx_std_20)

if(SLIPSTREAM_TORCH)
  list(APPEND SLIPSTREAM_LIBRARIES slipstream slipstream_cli)
  set_target_properties(slipstream_cli PROPERTIES EXPORT_NAME cli)
  add_library(slipstream::slipstream ALIAS slipstream)
  add_library(slipstream::cli ALIAS slipstream_cli)
  install(TARGETS slipstream_program RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
endif()

install(TARGETS ${SLIPSTREAM_LIBRARIES} EXPORT slipstreamTargets ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(DIRECTORY ${PROJECT_SOURCE_DIR}/include/slipstream DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(EXPORT slipstreamTargets NAMESPACE slipstream:: DESTINATION ${SLIPSTREAM_PACKAGE_DIR})

configure_package_config_file(${CMAKE_CURRENT_LIST_DIR}/slipstreamConfig.cmake.in
  ${PROJECT_BINARY_DIR}/slipstreamConfig.cmake INSTALL_DESTINATION ${SLIPSTREAM_PACKAGE_DIR})
# Before 1.0 a minor version may change the interface.
write_basic_package_version_file(${PROJECT_BINARY_DIR}/slipstreamConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/slipstreamConfig.cmake ${PROJECT_BINARY_DIR}/slipstreamConfigVersion.cmake
        DESTINATION ${SLIPSTREAM_PACKAGE_DIR})
