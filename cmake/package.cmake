# A Debian package by CPack: scripts/package. Its dependencies are read off the program's own libraries.
set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME melete)
set(CPACK_PACKAGE_CONTACT "melete's developers <melete@localhost>")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "trains and runs generative audio models")
set(CPACK_PACKAGE_DESCRIPTION
    "Neural codecs, audio language models, text-to-speech and text-to-music, trained and run by one program on LibTorch,\nwithout Python. With the library, its headers and the recipes.")
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SECTION sound)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
# Without it LibTorch computes at half the speed: docs/performance.md.
set(CPACK_DEBIAN_PACKAGE_RECOMMENDS libopenblas0-openmp)
set(CPACK_DEBIAN_PACKAGE_SUGGESTS "libtorch-dev, espeak-ng, ffmpeg")
set(CPACK_STRIP_FILES ON)
include(CPack)

# The manual page and the shell's completion, where scripts/package has made them.
install(FILES ${CMAKE_BINARY_DIR}/melete.1.gz DESTINATION ${CMAKE_INSTALL_MANDIR}/man1 OPTIONAL)
install(FILES cmake/package/completion.bash DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions RENAME melete)
install(FILES LICENSE DESTINATION ${CMAKE_INSTALL_DATADIR}/doc/melete RENAME copyright)
