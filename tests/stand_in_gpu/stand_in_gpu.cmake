# The stand-in GPU: gyre's CUDA kernels compiled by g++, and a CUDA runtime that runs them on threads of the
# host. It needs CUDA's headers, but neither nvcc nor a GPU.
find_path(GYRE_CUDA_HEADERS cuda_runtime_api.h HINTS ENV CUDA_HOME PATHS /usr/local/cuda PATH_SUFFIXES include)
if(NOT GYRE_CUDA_HEADERS)
  message(FATAL_ERROR "gyre: GYRE_STAND_IN_GPU=ON but no cuda_runtime_api.h was found")
endif()
enable_language(CXX)
set(CMAKE_CXX_STANDARD 17)
set(GYRE_HAVE_CUDA ON)

# In CUDA's place. It is shared, because a process has one runtime: programs and libgyre.so use it together.
set(stand_in ${CMAKE_CURRENT_LIST_DIR})
file(GLOB stand_in_sources CONFIGURE_DEPENDS ${stand_in}/block.c ${stand_in}/kernel_list.c ${stand_in}/runtime*.c)
add_library(stand_in_gpu SHARED ${stand_in_sources})
add_library(CUDA::cudart_static ALIAS stand_in_gpu)
target_include_directories(stand_in_gpu PRIVATE ${PROJECT_SOURCE_DIR})
target_include_directories(stand_in_gpu SYSTEM PUBLIC ${GYRE_CUDA_HEADERS})
target_compile_definitions(stand_in_gpu PUBLIC TEST_STAND_IN_GPU=2) # as many GPUs as it has by default
target_compile_options(stand_in_gpu PRIVATE -O2)
set_target_properties(stand_in_gpu PROPERTIES C_VISIBILITY_PRESET default)
# Programs find it beside libstand_in_gpu.so when they ask the loader for libnvidia-ml.so.1.
add_library(stand_in_nvml SHARED ${stand_in}/nvml.c)
set_target_properties(stand_in_nvml PROPERTIES C_VISIBILITY_PRESET default OUTPUT_NAME nvidia-ml SOVERSION 1)

# Compiles a target's kernels with g++. For targets of the calling folder.
function(gyre_stand_in_kernels target)
  set(stand_in ${PROJECT_SOURCE_DIR}/tests/stand_in_gpu)
  get_target_property(sources ${target} SOURCES)
  list(FILTER sources INCLUDE REGEX "\\.cu$")
  set_source_files_properties(${sources} PROPERTIES LANGUAGE CXX)
  target_include_directories(${target} BEFORE PRIVATE ${stand_in}/include)
  target_include_directories(${target} SYSTEM PRIVATE ${GYRE_CUDA_HEADERS})
  target_compile_options(${target} PRIVATE $<$<COMPILE_LANGUAGE:CXX>:-xc++;-O1;-ffp-contract=off
    -fno-strict-aliasing;-fno-extern-tls-init;-fvisibility=hidden;-Wno-unknown-pragmas
    -D__CUDA_ARCH__=900;-include${stand_in}/device.h>)
endfunction()

# Called at the end of gyre_add_cuda().
function(gyre_add_stand_in_gpu)
  find_package(Threads REQUIRED)
  target_link_libraries(stand_in_gpu PRIVATE gyre_options Threads::Threads)
  target_link_libraries(stand_in_nvml PRIVATE gyre_options stand_in_gpu)
  target_sources(gyre_cuda_objects PRIVATE tests/stand_in_gpu/kernels.cpp)
  gyre_stand_in_kernels(gyre_cuda_objects)
  gyre_stand_in_kernels(gyre_cuda_lean_objects)
  add_dependencies(gyre_static stand_in_nvml) # no program links it
  target_link_options(gyre_static INTERFACE -Wl,-u,stand_in_kernels_of_gyre)
endfunction()
