# Where things are installed. Programs find each other by relative paths, so that an installed tree
# may be moved.
set(GYRE_CMAKE_DIR ${CMAKE_INSTALL_LIBDIR}/cmake/gyre)
set(GYRE_TOOLS_DIR ${CMAKE_INSTALL_LIBEXECDIR}/gyre)
# A folder of its own: a NCCL of the system, or of another package, keeps its place.
set(GYRE_NCCL_DIR ${CMAKE_INSTALL_LIBDIR}/gyre/nccl)
set(GYRE_DATA_DIR ${CMAKE_INSTALL_DATADIR}/gyre)
set(GYRE_COMPLETION_DIR ${CMAKE_INSTALL_DATADIR}/bash-completion/completions)

# gyre_relative(output from to): the path from one installed folder to another.
function(gyre_relative output from to)
  get_filename_component(from ${from} ABSOLUTE BASE_DIR ${CMAKE_INSTALL_PREFIX})
  get_filename_component(to ${to} ABSOLUTE BASE_DIR ${CMAKE_INSTALL_PREFIX})
  file(RELATIVE_PATH path ${from} ${to})
  string(REGEX REPLACE "/$" "" path ${path})
  set(${output} ${path} PARENT_SCOPE)
endfunction()

gyre_relative(GYRE_NCCL_FROM_TOOLS ${GYRE_TOOLS_DIR} ${GYRE_NCCL_DIR})
gyre_relative(GYRE_LIB_FROM_NCCL ${GYRE_NCCL_DIR} ${CMAKE_INSTALL_LIBDIR})
gyre_relative(GYRE_TOOLS_FROM_BIN ${CMAKE_INSTALL_BINDIR} ${GYRE_TOOLS_DIR})
gyre_relative(GYRE_PREFIX_FROM_PC ${CMAKE_INSTALL_LIBDIR}/pkgconfig .)
