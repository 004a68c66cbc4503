// SPDX-License-Identifier: Apache-2.0
//
// TextCorpus: any UTF-8 file as a character-level corpus. A character is a code point, its token the rank of the code
// point among those of the file, in numerical order. The first nine tenths are for training, the rest is validation:
// text is not shuffled across the border. The text is used as it is: no case folding, no normal forms, no change of
// line endings.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

namespace slipstream {

struct TextCorpus {
  std::vector<char32_t> vocabulary;  // ascending; token t stands for vocabulary[t]
  std::vector<std::int32_t> train;
  std::vector<std::int32_t> validation;
};

inline constexpr std::size_t kMostSymbols = std::size_t{1} << 16;

// Reads the file and checks that both parts have at least one window of `context` characters and the one to predict
// after it. DataError for invalid UTF-8 (with its offset), too short a text or too many different characters.
TextCorpus read_text(const std::filesystem::path& path, std::int64_t context);

std::string to_utf8(std::span<const char32_t> text);

// The least number of characters that a text needs for this context.
std::int64_t least_characters(std::int64_t context);

}  // namespace slipstream
