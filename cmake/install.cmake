# Install rules and the CMake package: someone else's project does find_package(melete) and links melete::melete.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

set(MELETE_CMAKE_DIR ${CMAKE_INSTALL_LIBDIR}/cmake/melete)

install(TARGETS melete melete_base EXPORT melete_targets ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
# A LibTorch outside the system's folders is found by the installed program, too.
set_target_properties(melete_program PROPERTIES INSTALL_RPATH_USE_LINK_PATH ON)
install(TARGETS melete_program RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
# The command line and the studio are not part of the library.
install(DIRECTORY src/ DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/melete
        FILES_MATCHING PATTERN "*.h" PATTERN "cli" EXCLUDE PATTERN "studio" EXCLUDE)
install(DIRECTORY recipes DESTINATION ${CMAKE_INSTALL_DATADIR}/melete)
install(EXPORT melete_targets NAMESPACE melete:: FILE melete-targets.cmake DESTINATION ${MELETE_CMAKE_DIR})
configure_package_config_file(cmake/melete-config.cmake.in ${CMAKE_BINARY_DIR}/melete-config.cmake
                              INSTALL_DESTINATION ${MELETE_CMAKE_DIR})
write_basic_package_version_file(${CMAKE_BINARY_DIR}/melete-config-version.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_BINARY_DIR}/melete-config.cmake ${CMAKE_BINARY_DIR}/melete-config-version.cmake
        DESTINATION ${MELETE_CMAKE_DIR})
