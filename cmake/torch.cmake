# SPDX-License-Identifier: Apache-2.0
#
# The torch edges and the program.
find_package(Torch REQUIRED)
find_package(CLI11 QUIET)  # header-only; Debian's is found by the compiler either way

add_library(slipstream STATIC ${TORCH_SOURCES})
target_include_directories(slipstream PRIVATE src)
target_include_directories(slipstream SYSTEM PUBLIC ${TORCH_INCLUDE_DIRS})
target_compile_options(slipstream PRIVATE -Wno-deprecated-declarations)
target_link_libraries(slipstream PUBLIC slipstream_core ${TORCH_LIBRARIES})
target_precompile_headers(slipstream PRIVATE <torch/torch.h>)  # half a minute: others use it again

file(GLOB CLI_SOURCES CONFIGURE_DEPENDS src/cli/*.cc)
list(REMOVE_ITEM CLI_SOURCES ${PROJECT_SOURCE_DIR}/src/cli/main.cc)
add_library(slipstream_cli STATIC ${CLI_SOURCES})
target_include_directories(slipstream_cli PRIVATE src)
target_link_libraries(slipstream_cli PUBLIC slipstream)
target_precompile_headers(slipstream_cli PRIVATE <CLI/CLI.hpp>)

add_executable(slipstream_program src/cli/main.cc)
set_target_properties(slipstream_program PROPERTIES OUTPUT_NAME slipstream)
target_link_libraries(slipstream_program slipstream_cli)
