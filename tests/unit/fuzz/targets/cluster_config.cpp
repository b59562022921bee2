#include "launcher/config/cluster_config.hpp"

#include "models/text/unicode/utf8.hpp"
#include "tests/support/checkpoint_folder.hpp"
#include "tests/unit/fuzz/targets/mutator.hpp"
#include "tests/unit/fuzz/targets/targets.hpp"

namespace troupe::fuzz {
namespace {

constexpr std::string_view words[] = {"&a ",
                                      "*a",
                                      "<<: *a",
                                      "!!binary ",
                                      "{",
                                      "[",
                                      "- ",
                                      "? ",
                                      ": ",
                                      "\n---\n",
                                      "\n  ",
                                      "\t",
                                      "|\n",
                                      ">-\n",
                                      "%YAML 1",
                                      "\"\\x",
                                      "auto",
                                      "~",
                                      "engine:\n  ",
                                      ".inf",
                                      "0x7fffffffffffffff",
                                      "1e999",
                                      "#",
                                      "true",
                                      "'",
                                      "parallel: {a: 1}",
                                      "job: []",
                                      "name: ",
                                      "[[[[[[[[[[[[[[[[[[[[[[[[[["};

constexpr std::string_view sets[] = {"engine.block_size=16", "model.path=x", "name=[1, 2]",
                                     "cluster.hosts=[a, b]", "engine.max_num_seqs=auto"};

}  // namespace

void changed_cluster_configs(Effort effort) {
  std::vector<std::string> files;
  const auto folder = std::filesystem::path(TROUPE_SOURCE_DIR) / "configs";
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (entry.path().extension() == ".yaml") files.push_back(golden::file_bytes(entry.path()));
  }
  ASSERT_FALSE(files.empty());
  std::size_t taken = 0;
  for_seeds(effort, [&](std::uint64_t seed) {
    Mutator mutator(seed);
    std::string text = files[mutator.below(files.size())];
    for (std::size_t i = 0, changes = 1 + mutator.below(3); i < changes; ++i) {
      text = mutator.bytes(text, words);
    }
    std::vector<Override> overrides;
    if (mutator.one_in(3)) {
      const auto set =
          parse_override(mutator.bytes(std::string(mutator.one_of<std::string_view>(sets)), words));
      if (set.ok()) overrides.push_back(*set);
    }
    const auto config = parse_config(text, "c.yaml", overrides, Purpose::check);
    if (!config.ok()) {
      EXPECT_FALSE(config.error().message.empty());
      return;
    }
    ++taken;
    // What is printed of it is the same configuration.
    const std::string printed = to_yaml(*config);
    const auto again = parse_config(printed, "printed", {}, Purpose::check);
    ASSERT_TRUE(again.ok()) << again.error().message << "\n" << printed << "\nof\n" << text;
    EXPECT_EQ(to_yaml(*again), printed) << text;
  });
  EXPECT_GT(taken, 0U);
}

}  // namespace troupe::fuzz
