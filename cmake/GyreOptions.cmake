# Compile options that every target of the project shares.
add_library(gyre_options INTERFACE)
target_compile_definitions(gyre_options INTERFACE _GNU_SOURCE)
target_compile_options(gyre_options INTERFACE
  $<$<COMPILE_LANGUAGE:C>:-Wall;-Wextra;-Wpedantic;-Wshadow;-Wconversion;-Wmissing-prototypes>
  $<$<AND:$<BOOL:${GYRE_WERROR}>,$<COMPILE_LANGUAGE:C>>:-Werror>)
