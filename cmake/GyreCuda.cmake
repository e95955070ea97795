# CUDA where nvcc is: static runtime, driver by dlopen, so that the binary also runs on machines
# without a driver.
set(GYRE_HAVE_CUDA OFF)
if(GYRE_STAND_IN_GPU)
  include(tests/stand_in_gpu/stand_in_gpu.cmake)
elseif(NOT GYRE_CUDA STREQUAL "OFF")
  find_program(GYRE_NVCC nvcc HINTS ENV CUDA_HOME PATHS /usr/local/cuda/bin)
  if(GYRE_NVCC)
    set(CMAKE_CUDA_COMPILER ${GYRE_NVCC})
    set(CMAKE_CUDA_ARCHITECTURES OFF) # GYRE_CUDA_ARCHS decides
    set(CMAKE_CUDA_RUNTIME_LIBRARY Static)
    enable_language(CUDA)
    find_package(CUDAToolkit REQUIRED)
    set(CMAKE_CUDA_STANDARD 17)
    if(NOT CMAKE_CUDA_COMPILER_VERSION VERSION_LESS 13.0) # cudaStreamGetCaptureInfo() with edges
      set(GYRE_HAVE_CUDA ON)
    elseif(GYRE_CUDA STREQUAL "ON")
      message(FATAL_ERROR "gyre: ${GYRE_NVCC} is of CUDA ${CMAKE_CUDA_COMPILER_VERSION}, gyre needs 13")
    else()
      message(WARNING "gyre: ${GYRE_NVCC} is of CUDA ${CMAKE_CUDA_COMPILER_VERSION}, gyre needs 13: "
                      "built for the host device only")
    endif()
  elseif(GYRE_CUDA STREQUAL "ON")
    message(FATAL_ERROR "gyre: GYRE_CUDA=ON but no nvcc was found")
  else()
    message(STATUS "gyre: no nvcc: built for the host device only")
  endif()
endif()

# Lists of element types, a list a source that nvcc compiles: the most reduced types have fused kernels.
set(fused_lists FLOAT16:BFLOAT16 FLOAT32 FLOAT64)
set(interpreted_lists FLOAT8_E4M3:FLOAT8_E5M2 INT32:UINT32 INT64:UINT64 INT8:UINT8)

# Sets `interpreters` in the caller: the sources in kernels/cuda/interpreter, and interp_types.cu.in for each list.
function(gyre_make_interpreters)
  set(sources ${PROJECT_SOURCE_DIR}/kernels/cuda/interpreter/interp_copy.cu)
  foreach(list IN LISTS fused_lists interpreted_lists)
    set(macro DEFINE_KERNELS)
    if(list IN_LIST fused_lists)
      set(macro DEFINE_INTERPRETED_AND_FUSED)
    endif()
    string(REGEX REPLACE "([^:]+):?" "${macro}(\\1)\n" tables ${list})
    string(REPLACE ":" "_" name ${list})
    set(source ${PROJECT_BINARY_DIR}/interp_${name}.cu)
    configure_file(kernels/cuda/interpreter/interp_types.cu.in ${source} @ONLY)
    list(APPEND sources ${source})
  endforeach()
  set(interpreters ${sources} PARENT_SCOPE)
endfunction()

# Adds the CUDA sources to the library targets, and gyre_cuda_options for programs with kernels of
# their own.
function(gyre_add_cuda)
  file(GLOB sources CONFIGURE_DEPENDS kernels/cuda/runtime/*.c kernels/cuda/copy_engine/*.c
       kernels/cuda/copy_engine/*.cu core/foundation/device/*_cuda.c
       core/foundation/topo/*_cuda.c transport/*_cuda.c)
  gyre_make_interpreters()
  set(flags)
  foreach(arch IN LISTS GYRE_CUDA_ARCHS)
    list(APPEND flags "SHELL:-gencode arch=compute_${arch},code=sm_${arch}")
  endforeach()
  if(arch MATCHES "^[0-9]+$") # the last one: PTX too, for GPUs that come later
    list(APPEND flags "SHELL:-gencode arch=compute_${arch},code=compute_${arch}")
  endif()
  if(GYRE_COMPRESS_KERNELS)
    list(APPEND flags "SHELL:--compress-mode=size")
  endif()
  add_library(gyre_cuda_options INTERFACE)
  target_compile_options(gyre_cuda_options INTERFACE
    $<$<COMPILE_LANGUAGE:CUDA>:${flags};--fmad=false;-Xcompiler=-fvisibility=hidden>)
  add_library(gyre_cuda_objects OBJECT ${sources} ${interpreters})
  target_link_libraries(gyre_cuda_objects PRIVATE gyre_cuda_options)
  target_compile_options(gyre_cuda_objects PRIVATE $<$<COMPILE_LANGUAGE:C>:-ffp-contract=off>)
  target_link_libraries(gyre_cuda_objects PUBLIC gyre_options gyre_packages CUDA::cudart_static)
  target_include_directories(gyre_cuda_objects PUBLIC ${CMAKE_CURRENT_SOURCE_DIR})
  target_compile_definitions(gyre_cuda_objects PUBLIC GYRE_WITH_CUDA)
  target_compile_definitions(gyre_objects PUBLIC GYRE_WITH_CUDA)
  # The same sources once more, for lean kernels (kernels/cuda/device/lean.cuh).
  add_library(gyre_cuda_lean_objects OBJECT ${interpreters})
  target_link_libraries(gyre_cuda_lean_objects PRIVATE gyre_cuda_options gyre_options)
  target_include_directories(gyre_cuda_lean_objects PRIVATE ${CMAKE_CURRENT_SOURCE_DIR})
  target_compile_definitions(gyre_cuda_lean_objects PRIVATE GYRE_WITH_CUDA GYRE_CUDA_LEAN=1)
  target_link_libraries(gyre PRIVATE gyre_cuda_objects gyre_cuda_lean_objects)
  target_link_libraries(gyre_static PUBLIC gyre_cuda_objects gyre_cuda_lean_objects)
  if(GYRE_STAND_IN_GPU)
    gyre_add_stand_in_gpu()
  endif()
endfunction()
