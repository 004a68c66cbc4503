# SPDX-License-Identifier: Apache-2.0
#
# The torch edges and the program.
# Which torch: the first on CMAKE_PREFIX_PATH, else Debian's. For a pip wheel the prefix is .../site-packages/torch.
find_package(Torch REQUIRED)
find_package(CLI11 QUIET)  # header-only; Debian's is found by the compiler either way

add_library(slipstream STATIC ${TORCH_SOURCES})
target_include_directories(slipstream PRIVATE src)
# Whoever uses the installed library finds a torch of its own, and its headers with it.
target_include_directories(slipstream SYSTEM PUBLIC "$<BUILD_INTERFACE:${TORCH_INCLUDE_DIRS}>")
target_compile_options(slipstream PRIVATE -Wno-deprecated-declarations)
target_link_libraries(slipstream PUBLIC slipstream_core ${TORCH_LIBRARIES})
# Debian's packages belong together. A wheel brings the headers of its own fmt without that library, and none of its Gloo.
list(GET TORCH_INCLUDE_DIRS 0 TORCH_HEADERS)
if(EXISTS ${TORCH_HEADERS}/fmt AND NOT TORCH_HEADERS STREQUAL /usr/include)
  target_compile_definitions(slipstream PUBLIC FMT_HEADER_ONLY)
endif()
if(EXISTS ${TORCH_HEADERS}/gloo)
  set_source_files_properties(src/fabric/c10d_sums.cc PROPERTIES COMPILE_DEFINITIONS SLIPSTREAM_GLOO)
endif()
target_precompile_headers(slipstream PRIVATE <torch/torch.h>)  # half a minute: others use it again

file(GLOB CLI_SOURCES CONFIGURE_DEPENDS src/cli/*.cc)
list(REMOVE_ITEM CLI_SOURCES ${PROJECT_SOURCE_DIR}/src/cli/main.cc)
add_library(slipstream_cli STATIC ${CLI_SOURCES})
target_include_directories(slipstream_cli PRIVATE src)
# It links torch and includes none of it: the compiler cache knows its objects whatever torch is.
target_link_libraries(slipstream_cli PUBLIC slipstream_core $<LINK_ONLY:slipstream>)
target_precompile_headers(slipstream_cli PRIVATE <CLI/CLI.hpp>)

add_executable(slipstream_program src/cli/main.cc)
set_target_properties(slipstream_program PROPERTIES OUTPUT_NAME slipstream)
target_link_libraries(slipstream_program slipstream_cli)
