# Compile options that every target of the project shares.
set(GYRE_SANITIZE "" CACHE STRING "Sanitizers, as for -fsanitize=: address,undefined or thread")
add_library(gyre_options INTERFACE)
target_compile_definitions(gyre_options INTERFACE _GNU_SOURCE)
target_compile_options(gyre_options INTERFACE
  $<$<COMPILE_LANGUAGE:C>:-Wall;-Wextra;-Wpedantic;-Wshadow;-Wconversion;-Wmissing-prototypes>
  $<$<AND:$<BOOL:${GYRE_WERROR}>,$<COMPILE_LANGUAGE:C>>:-Werror>)
if(GYRE_SANITIZE)
  # Undefined behaviour ends the test instead of only printing.
  target_compile_options(gyre_options INTERFACE $<$<COMPILE_LANGUAGE:C>:-fsanitize=${GYRE_SANITIZE}
    -fno-sanitize-recover=all -fno-omit-frame-pointer>)
  target_link_options(gyre_options INTERFACE -fsanitize=${GYRE_SANITIZE})
endif()
