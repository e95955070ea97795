# CUDA where nvcc is: static runtime, driver by dlopen, so that the binary also runs on machines
# without a driver.
set(GYRE_HAVE_CUDA OFF)
if(NOT GYRE_CUDA STREQUAL "OFF")
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

# Adds the CUDA sources to the library targets, and gyre_cuda_options for programs with kernels of
# their own.
function(gyre_add_cuda)
  file(GLOB sources CONFIGURE_DEPENDS kernels/cuda/*.cu kernels/cuda/runtime/*.c
       kernels/cuda/copy_engine/*.c kernels/cuda/*/*.cu core/device/*_cuda.c
       core/topo/*_cuda.c transport/*_cuda.c)
  if(NOT sources)
    return()
  endif()
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
  add_library(gyre_cuda_objects OBJECT ${sources})
  target_link_libraries(gyre_cuda_objects PRIVATE gyre_cuda_options)
  target_compile_options(gyre_cuda_objects PRIVATE $<$<COMPILE_LANGUAGE:C>:-ffp-contract=off>)
  target_link_libraries(gyre_cuda_objects PUBLIC gyre_options gyre_packages CUDA::cudart_static)
  target_include_directories(gyre_cuda_objects PUBLIC ${CMAKE_CURRENT_SOURCE_DIR})
  target_compile_definitions(gyre_cuda_objects PUBLIC GYRE_WITH_CUDA)
  target_compile_definitions(gyre_objects PUBLIC GYRE_WITH_CUDA)
  # The same sources once more, for lean kernels (kernels/cuda/device/lean.cuh).
  file(GLOB interpreters CONFIGURE_DEPENDS kernels/cuda/interpreter/*.cu)
  add_library(gyre_cuda_lean_objects OBJECT ${interpreters})
  target_link_libraries(gyre_cuda_lean_objects PRIVATE gyre_cuda_options gyre_options)
  target_include_directories(gyre_cuda_lean_objects PRIVATE ${CMAKE_CURRENT_SOURCE_DIR})
  target_compile_definitions(gyre_cuda_lean_objects PRIVATE GYRE_WITH_CUDA GYRE_CUDA_LEAN=1)
  target_link_libraries(gyre PRIVATE gyre_cuda_objects gyre_cuda_lean_objects)
  target_link_libraries(gyre_static PUBLIC gyre_cuda_objects gyre_cuda_lean_objects)
endfunction()
