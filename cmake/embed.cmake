# Turns files into a C source with one array for each file, for programs that carry their pages.
#
#   cmake -DOUTPUT=embedded.c -DHEADER=bench/draw/drawing.h -DPREFIX=bench_draw_
#         -DFILES=a/page.html,a/page.css -DSCRIPTS=a/state.js,a/page.js -P embed.cmake
#
# page.html becomes `const struct ${PREFIX}embedded ${PREFIX}page_html`. The scripts, if there are any, are
# also listed, in order, in `${PREFIX}scripts`.
cmake_minimum_required(VERSION 3.22)
string(REPLACE "," ";" FILES "${FILES}")
string(REPLACE "," ";" SCRIPTS "${SCRIPTS}")
set(text "/* Made by cmake/embed.cmake from the files that are named below. */\n#include \"${HEADER}\"\n")
set(list "")
foreach(file ${FILES} ${SCRIPTS})
  get_filename_component(name ${file} NAME)
  string(REPLACE "." "_" name ${name})
  file(READ ${file} hex HEX)
  string(LENGTH "${hex}" n_digits)
  math(EXPR n_bytes "${n_digits} / 2")
  string(REGEX REPLACE "([0-9a-f][0-9a-f])" "0x\\1," bytes "${hex}")
  string(REGEX REPLACE "(................................................................................)"
                       "\\1\n" bytes "${bytes}")
  string(APPEND text "\nstatic const unsigned char ${name}_bytes[] = {\n${bytes}0};\n")
  if(${file} IN_LIST SCRIPTS)
    string(APPEND text "static const struct ${PREFIX}embedded ${name} = {${name}_bytes, ${n_bytes}};\n")
    string(APPEND list "&${name}, ")
  else()
    string(APPEND text
      "const struct ${PREFIX}embedded ${PREFIX}${name} = {${name}_bytes, ${n_bytes}};\n")
  endif()
endforeach()
if(SCRIPTS)
  string(APPEND text
    "\nconst struct ${PREFIX}embedded *const ${PREFIX}scripts[] = {${list}(const struct ${PREFIX}embedded *)0};\n")
endif()
file(WRITE ${OUTPUT} "${text}")
