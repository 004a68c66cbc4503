# SPDX-License-Identifier: Apache-2.0
#
# Writes the C++ source that holds the page of `slipstream report` and Chart.js, each as a raw string. A script of the
# build:
#
#   cmake -DFOLDER=src/report/page -DCHART_JS=chart.min.js -DOUTPUT=page.cc -P embed_page.cmake
#
# src/report/report.h declares what it defines.
function(read_part name file)
  file(READ "${file}" text)
  string(FIND "${text}" ")page\"" closing)
  if(NOT closing EQUAL -1)
    message(FATAL_ERROR "${file} contains )page\", which ends a raw string in ${OUTPUT}; write it otherwise")
  endif()
  string(FIND "${text}" "</script" closing)
  if(NOT closing EQUAL -1 AND file MATCHES "[.]js$")
    message(FATAL_ERROR "${file} contains </script, which ends the element that it stands in")
  endif()
  set(${name} "${text}" PARENT_SCOPE)
endfunction()

read_part(html "${FOLDER}/page.html")
read_part(css "${FOLDER}/page.css")
read_part(js "${FOLDER}/page.js")
read_part(timeline "${FOLDER}/timeline.js")
read_part(grid "${FOLDER}/grid.js")
read_part(chart "${CHART_JS}")
file(WRITE "${OUTPUT}" "// Written by cmake/embed_page.cmake from src/report/page and ${CHART_JS}; edit those.
#include \"report/report.h\"

namespace slipstream {

const PageParts& page_parts() {
  static constexpr PageParts kParts{
      R\"page(${html})page\",
      R\"page(${css})page\",
      R\"page(${timeline}${grid}${js})page\",
      R\"page(${chart})page\"};
  return kParts;
}

}  // namespace slipstream
")
