# For the Python wheel: a libgyre.so that also has all programs inside, and one_program, which starts
# them. Otherwise every program would carry its own copy of the library with its GPU kernels. To be
# included by bench/CMakeLists.txt, after all programs are defined.
#
# The library is linked from the sources of the programs' own targets, so that a program which gets
# another source needs no change here. main() of each becomes bench_main_NAME().
set(wheel_dir ${CMAKE_BINARY_DIR}/wheel) # as in the wheel: lib/ and libexec/gyre/
set(map ${PROJECT_SOURCE_DIR}/cmake/wheel/one_program.map)
get_property(in_bench DIRECTORY PROPERTY BUILDSYSTEM_TARGETS)
add_library(one_program_library SHARED one_program_table.c)
set_target_properties(one_program_library PROPERTIES OUTPUT_NAME gyre
  VERSION ${PROJECT_VERSION} SOVERSION ${PROJECT_VERSION_MAJOR}
  LIBRARY_OUTPUT_DIRECTORY ${wheel_dir}/lib LINK_DEPENDS ${map})
target_link_options(one_program_library PRIVATE -Wl,--version-script=${map} -Wl,--no-undefined
  -Wl,-z,nodelete) # as libgyre.so
target_link_libraries(one_program_library PRIVATE gyre_objects bench_driver m)
if(GYRE_HAVE_CUDA)
  target_link_libraries(one_program_library PRIVATE gyre_cuda_objects gyre_cuda_options)
endif()
set(shared_sources "")
foreach(target IN LISTS in_bench)
  get_target_property(type ${target} TYPE)
  if(NOT type STREQUAL EXECUTABLE)
    continue()
  endif()
  get_target_property(name ${target} OUTPUT_NAME)
  if(NOT name)
    set(name ${target})
  endif()
  get_target_property(sources ${target} SOURCES)
  list(POP_FRONT sources main)
  list(APPEND shared_sources ${sources})
  add_library(${target}_main OBJECT ${main})
  target_compile_definitions(${target}_main PRIVATE main=bench_main_${name}
    $<TARGET_PROPERTY:${target},COMPILE_DEFINITIONS>)
  target_compile_options(${target}_main PRIVATE -include bench/one_program.h
    $<TARGET_PROPERTY:${target},COMPILE_OPTIONS>)
  target_link_libraries(${target}_main PRIVATE bench_driver)
  target_sources(one_program_library PRIVATE $<TARGET_OBJECTS:${target}_main>)
  target_compile_definitions(one_program_library
    PRIVATE $<TARGET_PROPERTY:${target},COMPILE_DEFINITIONS>)
endforeach()
# What the driver has is linked from its archive.
get_target_property(of_driver bench_driver SOURCES)
list(REMOVE_DUPLICATES shared_sources)
list(REMOVE_ITEM shared_sources ${of_driver})
target_sources(one_program_library PRIVATE ${shared_sources})
add_dependencies(one_program_library draw) # which makes draw_embedded.c
if(JSONC_INCLUDE_DIR)
  target_include_directories(one_program_library SYSTEM PRIVATE ${JSONC_INCLUDE_DIR})
endif()

add_executable(one_program one_program.c)
target_link_libraries(one_program PRIVATE gyre_options one_program_library)
target_include_directories(one_program PRIVATE ${PROJECT_SOURCE_DIR})
set_target_properties(one_program PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${wheel_dir}/libexec/gyre
  BUILD_WITH_INSTALL_RPATH ON INSTALL_RPATH "$ORIGIN/../../lib")
