// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/state_archive.h"

#include <gtest/gtest.h>
#include <slipstream/base/error.h>

namespace slipstream {
namespace {

struct Thing {
  std::vector<float> values = {1, 2, 3};
  std::int64_t count = 4;
  void visit(StateVisitor& v) {
    v.floats("values", values);
    v.integer("count", count);
  }
};

StateArchive saved(Thing thing, std::string_view prefix = "thing/") {
  StateArchive archive;
  archive.save(prefix, [&](StateVisitor& v) { thing.visit(v); });
  return archive;
}

// The message of the ConfigError that restoring throws.
std::string refusal(const StateArchive& archive, const StateArchive::Visit& visit) {
  try {
    archive.restore("thing/", visit);
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "";
}

TEST(StateArchive, RestoresWhatWasSaved) {
  Thing thing{{0, 0, 0}, 0};
  saved({{5, 6, 7}, 8}).restore("thing/", [&](StateVisitor& v) { thing.visit(v); });
  EXPECT_EQ(thing.values, (std::vector<float>{5, 6, 7}));
  EXPECT_EQ(thing.count, 8);
}

TEST(StateArchive, NamesWhatIsMissing) {
  Thing thing;
  EXPECT_NE(refusal(saved({}, "other/"), [&](StateVisitor& v) { thing.visit(v); }).find("'thing/values'"),
            std::string::npos);
}

TEST(StateArchive, NamesWhatHasAnotherSizeOrKind) {
  Thing shorter{{1, 2}, 0};
  EXPECT_NE(refusal(saved({}), [&](StateVisitor& v) { shorter.visit(v); }).find("'thing/values' has 3 floats where 2"),
            std::string::npos);
  EXPECT_NE(refusal(saved({}),
                    [](StateVisitor& v) {
                      std::int64_t n = 0;
                      v.integer("values", n);
                    })
                .find("'thing/values'"),
            std::string::npos);
}

TEST(StateArchive, NamesWhatIsLeftOver) {
  std::vector<float> values(3);
  EXPECT_NE(refusal(saved({}), [&](StateVisitor& v) { v.floats("values", values); }).find("'thing/count'"),
            std::string::npos);
}

TEST(StateArchive, ForgottenMemoryIsUsedAgainByEntriesOfTheSameName) {
  std::vector<float> values{1, 2, 3}, more{4};
  StateArchive archive;
  const auto save = [&] {
    archive.save("", [&](StateVisitor& v) {
      v.floats("values", values);
      v.floats("more", more);
    });
    return std::get<std::vector<float>>(archive.entries().at("values")).data();
  };
  const float* const place = save();
  archive.forget();
  EXPECT_TRUE(archive.entries().empty());
  values = {7, 8, 9};
  more = {5, 6};
  EXPECT_EQ(save(), place);
  EXPECT_EQ(std::get<std::vector<float>>(archive.entries().at("values")), values);
  EXPECT_EQ(std::get<std::vector<float>>(archive.entries().at("more")), more) << "of another size than before";
}

TEST(StateArchive, RefusesANameThatIsTaken) {
  StateArchive archive = saved({});
  Thing thing;
  EXPECT_THROW(archive.save("thing/", [&](StateVisitor& v) { thing.visit(v); }), Error);
}

}  // namespace
}  // namespace slipstream
