# SPDX-License-Identifier: Apache-2.0
#
# Writes the C++ source that holds the script of the peers as a raw string. A script of the build:
#
#   cmake -DSCRIPT=bench/lab/peer.py -DOUTPUT=peer.cc -P embed_peer.cmake
#
# src/compare/peer.h declares what it defines.
file(READ "${SCRIPT}" text)
string(FIND "${text}" ")peer\"" closing)
if(NOT closing EQUAL -1)
  message(FATAL_ERROR "${SCRIPT} contains )peer\", which ends a raw string in ${OUTPUT}; write it otherwise")
endif()
file(WRITE "${OUTPUT}" "// Written by cmake/embed_peer.cmake from bench/lab/peer.py; edit that.
#include \"compare/peer.h\"

namespace slipstream {

std::string_view peer_script() { return R\"peer(${text})peer\"; }

}  // namespace slipstream
")
