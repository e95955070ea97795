# What `cmake --install` puts down, and `uninstall`. The components are those of the packages
# (GyreCPack.cmake): library, development, tools, nccl.
include(CMakePackageConfigHelpers)

# gyre_install(...): as install(). Folders that are not there yet are made so that every user may enter
# them, whatever the umask; install() alone makes them as the umask says.
function(gyre_install)
  set(components "")
  set(folders "")
  set(before "")
  foreach(word IN LISTS ARGN)
    if(before STREQUAL DESTINATION)
      list(APPEND folders ${word})
    elseif(before MATCHES "COMPONENT$")
      list(APPEND components ${word})
    endif()
    set(before ${word})
  endforeach()
  set(exclude "")
  if(EXCLUDE_FROM_ALL IN_LIST ARGN)
    set(exclude EXCLUDE_FROM_ALL)
  endif()
  list(REMOVE_DUPLICATES components)
  foreach(component IN LISTS components)
    install(CODE "
      foreach(folder ${folders})
        get_filename_component(folder \"\${folder}\" ABSOLUTE BASE_DIR \"\${CMAKE_INSTALL_PREFIX}\")
        set(folder \"\$ENV{DESTDIR}\${folder}\")
        set(made \"\")
        while(NOT EXISTS \"\${folder}\")
          list(PREPEND made \"\${folder}\")
          get_filename_component(folder \"\${folder}\" DIRECTORY)
        endwhile()
        if(made)
          file(MAKE_DIRECTORY \${made})
          file(CHMOD \${made} PERMISSIONS OWNER_READ OWNER_WRITE OWNER_EXECUTE
            GROUP_READ GROUP_EXECUTE WORLD_READ WORLD_EXECUTE)
        endif()
      endforeach()" COMPONENT ${component} ${exclude})
  endforeach()
  install(${ARGN})
endfunction()

# ---- library and development ------------------------------------------------------------------
gyre_install(TARGETS gyre EXPORT gyreTargets LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}
  COMPONENT library NAMELINK_COMPONENT development)
gyre_install(FILES core/gyre.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} COMPONENT development)
gyre_install(EXPORT gyreTargets NAMESPACE gyre:: DESTINATION ${GYRE_CMAKE_DIR} COMPONENT development)
configure_package_config_file(cmake/gyreConfig.cmake.in ${CMAKE_BINARY_DIR}/gyreConfig.cmake
  INSTALL_DESTINATION ${GYRE_CMAKE_DIR})
write_basic_package_version_file(${CMAKE_BINARY_DIR}/gyreConfigVersion.cmake
  COMPATIBILITY SameMinorVersion)
gyre_install(FILES ${CMAKE_BINARY_DIR}/gyreConfig.cmake ${CMAKE_BINARY_DIR}/gyreConfigVersion.cmake
  DESTINATION ${GYRE_CMAKE_DIR} COMPONENT development)
configure_file(cmake/gyre.pc.in ${CMAKE_BINARY_DIR}/gyre.pc @ONLY)
gyre_install(FILES ${CMAKE_BINARY_DIR}/gyre.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig
  COMPONENT development)
file(GLOB examples CONFIGURE_DEPENDS docs/examples/*.c)
gyre_install(FILES ${examples} DESTINATION ${CMAKE_INSTALL_DOCDIR}/docs/examples COMPONENT development)

# ---- NCCL's ABI -------------------------------------------------------------------------------
set_target_properties(nccl PROPERTIES INSTALL_RPATH "$ORIGIN/${GYRE_LIB_FROM_NCCL}")
gyre_install(TARGETS nccl LIBRARY DESTINATION ${GYRE_NCCL_DIR} COMPONENT nccl NAMELINK_SKIP)

# ---- pages ------------------------------------------------------------------------------------
file(GLOB pages CONFIGURE_DEPENDS docs/*.md)
gyre_install(DIRECTORY docs/examples DESTINATION ${CMAKE_INSTALL_DOCDIR}/docs COMPONENT tools
  PATTERN *.c EXCLUDE PATTERN .ipynb_checkpoints EXCLUDE)
gyre_install(FILES README.md CHANGELOG.md DESTINATION ${CMAKE_INSTALL_DOCDIR} COMPONENT tools)
gyre_install(FILES ${pages} DESTINATION ${CMAKE_INSTALL_DOCDIR}/docs COMPONENT tools)
gyre_install(DIRECTORY docs/pictures docs/course docs/tutorials DESTINATION ${CMAKE_INSTALL_DOCDIR}/docs COMPONENT tools)
gyre_install(FILES LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR} COMPONENT licence) # .deb: debian/copyright

# ---- tools ------------------------------------------------------------------------------------
# gyre starts the other programs from the folder that it is in. bin/gyre is therefore a link.
function(gyre_install_tools)
  get_property(in_bench DIRECTORY bench PROPERTY BUILDSYSTEM_TARGETS)
  set(targets "")
  foreach(target IN LISTS in_bench)
    get_target_property(type ${target} TYPE)
    if(type STREQUAL EXECUTABLE)
      list(APPEND targets ${target})
    endif()
  endforeach()
  gyre_install(TARGETS ${targets} RUNTIME DESTINATION ${GYRE_TOOLS_DIR} COMPONENT tools)
  gyre_install(DIRECTORY algorithms/simulate/machines DESTINATION ${GYRE_TOOLS_DIR} COMPONENT tools)
  gyre_install(DIRECTORY bench/python DESTINATION ${GYRE_TOOLS_DIR} COMPONENT tools
    PATTERN __pycache__ EXCLUDE PATTERN README.md EXCLUDE)
  gyre_install(FILES bench/report/report.schema.json bench/doctor/doctor.schema.json DESTINATION ${GYRE_DATA_DIR} COMPONENT tools)
  set(made ${CMAKE_BINARY_DIR}/installed)
  file(MAKE_DIRECTORY ${made}/bin ${made}/man)
  file(CREATE_LINK ${GYRE_TOOLS_FROM_BIN}/gyre ${made}/bin/gyre SYMBOLIC)
  gyre_install(FILES ${made}/bin/gyre DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT tools)
  if(CMAKE_CROSSCOMPILING AND NOT CMAKE_CROSSCOMPILING_EMULATOR)
    message(STATUS "gyre: programs cannot run here: no man pages, no bash completion")
    return()
  endif()
  # Both are made from --help, so that they cannot say anything else.
  set(scripts ${PROJECT_SOURCE_DIR}/cmake/man_pages.sh ${PROJECT_SOURCE_DIR}/cmake/bash_completion.sh)
  set(start ${CMAKE_CROSSCOMPILING_EMULATOR} $<TARGET_FILE:bench_gyre>)
  add_custom_command(OUTPUT ${made}/gyre.bash
    COMMAND sh ${PROJECT_SOURCE_DIR}/cmake/man_pages.sh ${made}/man ${PROJECT_VERSION} ${start}
    COMMAND sh ${PROJECT_SOURCE_DIR}/cmake/bash_completion.sh ${made}/gyre.bash ${start}
    DEPENDS ${targets} ${scripts} ${PROJECT_SOURCE_DIR}/cmake/man_page.awk
    COMMENT "Making man pages and bash completion from --help" VERBATIM)
  add_custom_target(man_pages ALL DEPENDS ${made}/gyre.bash)
  gyre_install(DIRECTORY ${made}/man/ DESTINATION ${CMAKE_INSTALL_MANDIR}/man1 COMPONENT tools
    FILES_MATCHING PATTERN "*.1.gz")
  gyre_install(FILES ${made}/gyre.bash DESTINATION ${GYRE_COMPLETION_DIR} RENAME gyre COMPONENT tools)
endfunction()
if(GYRE_BENCH)
  gyre_install_tools()
endif()

# ---- uninstall --------------------------------------------------------------------------------
if(PROJECT_IS_TOP_LEVEL)
  add_custom_target(uninstall COMMAND ${CMAKE_COMMAND}
    -D MANIFEST=${CMAKE_BINARY_DIR}/install_manifest.txt
    -P ${PROJECT_SOURCE_DIR}/cmake/uninstall.cmake VERBATIM)
endif()
