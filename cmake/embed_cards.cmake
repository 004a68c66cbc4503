# SPDX-License-Identifier: Apache-2.0
#
# Writes the C++ source that holds the strategies' cards, each as a raw string. A script of the build:
#
#   cmake -DFOLDER=src/strategy/cards -DNAMES=gs,lags,… -DOUTPUT=cards.cc -P embed_cards.cmake
#
# src/strategy/card.h declares what it defines, and reads the cards.
string(REPLACE "," ";" NAMES "${NAMES}")
set(entries "")
foreach(name IN LISTS NAMES)
  file(READ "${FOLDER}/${name}.md" text)
  string(FIND "${text}" ")card\"" closing)
  if(NOT closing EQUAL -1)
    message(FATAL_ERROR "${FOLDER}/${name}.md contains )card\", which ends a raw string in ${OUTPUT}; write it otherwise")
  endif()
  string(APPEND entries "    {\"${name}\", R\"card(${text})card\"},\n")
endforeach()
file(WRITE "${OUTPUT}" "// Written by cmake/embed_cards.cmake from src/strategy/cards; edit the cards.
#include \"strategy/card.h\"

namespace slipstream {

std::span<const CardText> card_texts() {
  static constexpr CardText kCards[] = {
${entries}  };
  return kCards;
}

}  // namespace slipstream
")
