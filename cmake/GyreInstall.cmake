# What `cmake --install` puts down: the shared library, its one header, gyre.pc and a CMake package.
include(CMakePackageConfigHelpers)
set(GYRE_CMAKE_DIR ${CMAKE_INSTALL_LIBDIR}/cmake/gyre)

install(TARGETS gyre EXPORT gyreTargets LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(FILES core/gyre.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(EXPORT gyreTargets NAMESPACE gyre:: DESTINATION ${GYRE_CMAKE_DIR})

configure_package_config_file(cmake/gyreConfig.cmake.in ${CMAKE_BINARY_DIR}/gyreConfig.cmake
  INSTALL_DESTINATION ${GYRE_CMAKE_DIR})
write_basic_package_version_file(${CMAKE_BINARY_DIR}/gyreConfigVersion.cmake
  COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_BINARY_DIR}/gyreConfig.cmake ${CMAKE_BINARY_DIR}/gyreConfigVersion.cmake
  DESTINATION ${GYRE_CMAKE_DIR})

# The prefix is only known for sure when installing (cmake --install --prefix).
set(GYRE_PC_IN ${CMAKE_CURRENT_SOURCE_DIR}/cmake/gyre.pc.in)
install(CODE "
  set(PROJECT_DESCRIPTION \"${PROJECT_DESCRIPTION}\")
  set(PROJECT_VERSION \"${PROJECT_VERSION}\")
  set(CMAKE_INSTALL_LIBDIR \"${CMAKE_INSTALL_LIBDIR}\")
  set(CMAKE_INSTALL_INCLUDEDIR \"${CMAKE_INSTALL_INCLUDEDIR}\")
  configure_file(\"${GYRE_PC_IN}\" \"${CMAKE_BINARY_DIR}/gyre.pc\" @ONLY)")
install(FILES ${CMAKE_BINARY_DIR}/gyre.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
