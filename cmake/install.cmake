# Install rules and the CMake package: someone else's project does find_package(melete) and links melete::melete.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

install(TARGETS melete melete_base EXPORT melete_targets ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(TARGETS melete_program RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
install(DIRECTORY src/ DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/melete FILES_MATCHING PATTERN "*.h")
install(DIRECTORY recipes DESTINATION ${CMAKE_INSTALL_DATADIR}/melete)
install(EXPORT melete_targets NAMESPACE melete:: FILE melete-targets.cmake
        DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/melete)
configure_package_config_file(cmake/melete-config.cmake.in ${CMAKE_BINARY_DIR}/melete-config.cmake
                              INSTALL_DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/melete)
write_basic_package_version_file(${CMAKE_BINARY_DIR}/melete-config-version.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_BINARY_DIR}/melete-config.cmake ${CMAKE_BINARY_DIR}/melete-config-version.cmake
        DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/melete)
