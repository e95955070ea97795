# What the library is linked with. Verbs headers and MPI are optional: without them the build goes
# on and says what is missing.
add_library(gyre_packages INTERFACE)
find_package(Threads REQUIRED)
find_package(OpenSSL COMPONENTS Crypto) # HMAC-SHA256
if(NOT OpenSSL_FOUND)
  message(FATAL_ERROR "gyre needs OpenSSL's headers and library: apt-get install libssl-dev")
endif()
target_link_libraries(gyre_packages INTERFACE Threads::Threads OpenSSL::Crypto ${CMAKE_DL_LIBS} m)

include(CheckIncludeFile)
check_include_file(infiniband/verbs.h GYRE_HAVE_VERBS)
check_include_file(rdma/rdma_cma.h GYRE_HAVE_RDMACM)
if(NOT GYRE_HAVE_VERBS)
  message(STATUS "gyre: no infiniband/verbs.h (libibverbs-dev): built without RDMA")
elseif(GYRE_HAVE_RDMACM)
  target_compile_definitions(gyre_packages INTERFACE GYRE_WITH_RDMACM)
else()
  message(STATUS "gyre: no rdma/rdma_cma.h (librdmacm-dev): built without rdma_cm")
endif()

# Debian 13's openmpi-bin brings mpicc without mpi.h, and there CMake's own search for MPI ends in an error.
# An MPI that the user names is not looked for in PATH.
find_program(GYRE_MPICC mpicc)
set(mpicc_status 0)
if(GYRE_MPICC AND NOT MPI_C_COMPILER AND NOT MPI_HOME)
  file(WRITE ${CMAKE_BINARY_DIR}/CMakeFiles/find_mpi.c "#include <mpi.h>\n")
  execute_process(COMMAND ${GYRE_MPICC} -E ${CMAKE_BINARY_DIR}/CMakeFiles/find_mpi.c
    RESULT_VARIABLE mpicc_status OUTPUT_QUIET ERROR_QUIET)
endif()
if(mpicc_status EQUAL 0)
  find_package(MPI COMPONENTS C)
else()
  message(STATUS "gyre: ${GYRE_MPICC} finds no mpi.h")
endif()
set(GYRE_HAVE_MPI ${MPI_C_FOUND})
if(NOT GYRE_HAVE_MPI)
  message(STATUS "gyre: no MPI (libopenmpi-dev): benches start with torchrun's variables or -g only")
endif()

find_package(LibXml2)
set(GYRE_HAVE_LIBXML2 ${LibXml2_FOUND})
if(GYRE_HAVE_LIBXML2)
  target_link_libraries(gyre_packages INTERFACE LibXml2::LibXml2)
  target_compile_definitions(gyre_packages INTERFACE GYRE_WITH_LIBXML2)
else()
  message(STATUS "gyre: no libxml2 (libxml2-dev): built without reading topology files")
endif()
