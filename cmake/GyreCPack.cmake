# Packages by CPack, one for each component: libgyre0, libgyre-dev, gyre-tools, gyre-nccl as .deb,
# and everything in one tarball. cmake/package builds them (docs/install.md).
if(NOT PROJECT_IS_TOP_LEVEL OR NOT GYRE_BENCH)
  return()
endif()
set(GYRE_PACKAGE_CONTACT "gyre packager <root@localhost>" CACHE STRING
  "Who made the packages: Name <address>")

set(CPACK_PACKAGE_NAME gyre)
set(CPACK_PACKAGE_VENDOR gyre)
set(CPACK_PACKAGE_CONTACT ${GYRE_PACKAGE_CONTACT})
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "") # each package has its own
set(CPACK_OUTPUT_FILE_PREFIX packages)
set(CPACK_COMPONENTS_ALL library development tools nccl)
set(CPACK_COMPONENTS_GROUPING IGNORE)
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_RPM_COMPONENT_INSTALL ON)
set(CPACK_ARCHIVE_COMPONENT_INSTALL OFF)
set(CPACK_STRIP_FILES ON)
# CPack makes usr/ as the umask says.
file(WRITE ${CMAKE_BINARY_DIR}/open_folders.cmake
  [[file(GLOB_RECURSE paths LIST_DIRECTORIES true "${CPACK_TEMPORARY_DIRECTORY}/*")
foreach(path IN LISTS paths)
  if(IS_DIRECTORY "${path}")
    file(CHMOD "${path}" PERMISSIONS OWNER_READ OWNER_WRITE OWNER_EXECUTE
      GROUP_READ GROUP_EXECUTE WORLD_READ WORLD_EXECUTE)
  endif()
endforeach()
]])
set(CPACK_PRE_BUILD_SCRIPTS ${CMAKE_BINARY_DIR}/open_folders.cmake)
set(CPACK_GENERATOR DEB TGZ)

# gyre_describe(component section name_deb name_rpm synopsis text)
macro(gyre_describe component section name_deb name_rpm synopsis text)
  string(TOUPPER ${component} upper)
  set(CPACK_DEBIAN_${upper}_PACKAGE_NAME ${name_deb})
  set(CPACK_DEBIAN_${upper}_PACKAGE_SECTION ${section})
  set(CPACK_DEBIAN_${upper}_DESCRIPTION "${synopsis}\n${text}")
  set(CPACK_RPM_${upper}_PACKAGE_NAME ${name_rpm})
  set(CPACK_RPM_${upper}_PACKAGE_SUMMARY "${synopsis}")
  set(CPACK_RPM_${upper}_PACKAGE_DESCRIPTION "${text}")
endmacro()
# Lines of a description have at most 80 columns.
set(about "gyre carries out collectives (all-reduce, broadcast, all-gather and so on)
over NVLink, PCIe, shared memory, TCP and RDMA. Each algorithm is a small
program that is plain data.")
gyre_describe(library libs libgyre${PROJECT_VERSION_MAJOR} libgyre${PROJECT_VERSION_MAJOR}
  "collectives for GPUs and hosts: shared library" "${about}
This package has libgyre.so.")
gyre_describe(development libdevel libgyre-dev libgyre-devel
  "collectives for GPUs and hosts: header and examples" "${about}
This package has gyre.h, what CMake and pkg-config need, and examples.")
gyre_describe(tools utils gyre-tools gyre-tools
  "collectives for GPUs and hosts: benches and tools" "${about}
This package has the command gyre. It measures collectives as nccl-tests
does, checks machines (gyre doctor), shows the topology, and prints, draws,
proves and predicts the program of an algorithm.")
gyre_describe(nccl libs gyre-nccl gyre-nccl
  "collectives for GPUs and hosts: libnccl.so.2" "${about}
This package has a libnccl.so.2 on top of gyre, in a folder of its own. A
program uses it only if it is started with 'gyre run' of the package
gyre-tools, or with LD_LIBRARY_PATH.")

# ---- Debian -----------------------------------------------------------------------------------
set(debian ${CMAKE_BINARY_DIR}/debian)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_CONTROL_STRICT_PERMISSION ON)
set(CPACK_DEBIAN_COMPRESSION_TYPE xz)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS_PRIVATE_DIRS ${CMAKE_BINARY_DIR})
set(library_deb ${CPACK_DEBIAN_LIBRARY_PACKAGE_NAME})
set(CPACK_DEBIAN_LIBRARY_PACKAGE_RECOMMENDS "libibverbs1, librdmacm1") # loaded where they are
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_DEPENDS "${library_deb} (= ${PROJECT_VERSION})")
set(CPACK_DEBIAN_TOOLS_PACKAGE_RECOMMENDS "libibverbs1, librdmacm1")
if(GYRE_HAVE_MPI)
  string(PREPEND CPACK_DEBIAN_TOOLS_PACKAGE_RECOMMENDS "openmpi-bin, ")
endif()
set(CPACK_DEBIAN_TOOLS_PACKAGE_SUGGESTS
  "gyre-nccl (= ${PROJECT_VERSION}), python3-matplotlib, python3-jinja2") # for gyre report and gyre plot
set(CPACK_DEBIAN_NCCL_PACKAGE_DEPENDS "${library_deb} (= ${PROJECT_VERSION})")
set(CPACK_DEBIAN_NCCL_PACKAGE_RECOMMENDS "gyre-tools (= ${PROJECT_VERSION})")

# CPack would name the architecture of this machine.
if(CMAKE_CROSSCOMPILING)
  execute_process(COMMAND dpkg-architecture -f -t ${CMAKE_C_LIBRARY_ARCHITECTURE} -q DEB_HOST_ARCH
    OUTPUT_VARIABLE CPACK_DEBIAN_PACKAGE_ARCHITECTURE OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
endif()
# Debian 13 and Ubuntu 24.04 call the package of libmpi.so.40 by other names than Debian 12 does, and
# have no package that provides the old name. The calls that gyre uses are the same in OpenMPI 4 and 5.
# CPack has no option for this, so it starts a script in the place of dpkg-shlibdeps.
find_program(GYRE_SHLIBDEPS dpkg-shlibdeps)
if(GYRE_SHLIBDEPS)
  file(WRITE ${debian}/shlibs.other
    "libmpi 40 libopenmpi3 (>= 4.1.2) | libopenmpi3t64 | libopenmpi40\n")
  set(host_arch "")
  if(CPACK_DEBIAN_PACKAGE_ARCHITECTURE)
    set(host_arch "DEB_HOST_ARCH=${CPACK_DEBIAN_PACKAGE_ARCHITECTURE} ")
  endif()
  file(WRITE ${debian}/shlibdeps
    "#!/bin/sh\n${host_arch}exec '${GYRE_SHLIBDEPS}' '-L${debian}/shlibs.other' \"$@\"\n")
  file(CHMOD ${debian}/shlibdeps PERMISSIONS OWNER_READ OWNER_WRITE OWNER_EXECUTE)
  file(WRITE ${debian}/cpack.cmake "set(SHLIBDEPS_EXECUTABLE \"${debian}/shlibdeps\")\n")
  set(CPACK_PROJECT_CONFIG_FILE ${debian}/cpack.cmake)
endif()

# What Debian's policy wants: the control files of a shared library, and a changelog and a copyright
# for each package. They are no part of `cmake --install`.
file(WRITE ${debian}/triggers "activate-noawait ldconfig\n")
file(WRITE ${debian}/shlibs
  "libgyre ${PROJECT_VERSION_MAJOR} ${library_deb} (>= ${PROJECT_VERSION})\n")
set(CPACK_DEBIAN_LIBRARY_PACKAGE_CONTROL_EXTRA ${debian}/triggers ${debian}/shlibs)
string(TIMESTAMP date "%a, %d %b %Y %H:%M:%S +0000" UTC) # of SOURCE_DATE_EPOCH, if that is set
file(WRITE ${debian}/changelog "gyre (${PROJECT_VERSION}) unstable; urgency=medium

  * Version ${PROJECT_VERSION}, see CHANGELOG.md of the sources.

 -- ${GYRE_PACKAGE_CONTACT}  ${date}
")
execute_process(COMMAND gzip -9nf ${debian}/changelog)
configure_file(cmake/debian_copyright.in ${debian}/copyright @ONLY)
# CPack writes scripts that call ldconfig, beside the trigger.
file(WRITE ${debian}/${library_deb} "${library_deb}: maintscript-calls-ldconfig\n")
gyre_install(FILES ${debian}/${library_deb} DESTINATION ${CMAKE_INSTALL_DATADIR}/lintian/overrides
  COMPONENT library EXCLUDE_FROM_ALL)
foreach(component IN LISTS CPACK_COMPONENTS_ALL)
  string(TOUPPER ${component} upper)
  gyre_install(FILES ${debian}/changelog.gz ${debian}/copyright COMPONENT ${component}
    DESTINATION ${CMAKE_INSTALL_DATADIR}/doc/${CPACK_DEBIAN_${upper}_PACKAGE_NAME} EXCLUDE_FROM_ALL)
endforeach()

include(CPack)
