#include <cstring>
#include <numeric>

#include "models/checkpoint/checkpoint.hpp"
#include "models/config/model_config.hpp"
#include "models/model/footprint.hpp"
#include "models/model/model.hpp"
#include "tests/golden/support/golden_model.hpp"
#include "tests/support/checkpoint_folder.hpp"
#include "tests/support/require.hpp"
#include "tests/unit/fuzz/targets/mutator.hpp"
#include "tests/unit/fuzz/targets/targets.hpp"

namespace troupe::fuzz {
namespace {

using nlohmann::ordered_json;

constexpr std::string_view header_words[] = {"\"F8_E4M3\"", "-1",       "18446744073709551615",
                                             "[0,0]",       "\"BF16\"", "4611686018427387904"};

std::string safetensors(std::string_view header, std::string_view data) {
  std::uint64_t length = header.size();
  std::string bytes(8, '\0');
  std::memcpy(bytes.data(), &length, 8);
  return bytes.append(header).append(data);
}

/// Looks at every byte that the file is said to have.
std::uint64_t sum_of(const Checkpoint& checkpoint) {
  std::uint64_t sum = 0;
  for (const std::string& name : checkpoint.names()) {
    const auto tensor = checkpoint.tensor(name);
    if (!tensor.ok()) continue;
    const auto* bytes = static_cast<const unsigned char*>(tensor->data());
    sum = std::accumulate(bytes, bytes + tensor->bytes(), sum);
  }
  return sum;
}

std::string dumped(const ordered_json& json) {
  return json.dump(-1, ' ', false, ordered_json::error_handler_t::replace);
}

}  // namespace

void changed_safetensors(Effort effort) {
  const golden::TemporaryFolder folder;
  const auto original = ordered_json::parse(R"({"__metadata__": {"format": "pt"},
    "a": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]},
    "b": {"dtype": "BF16", "shape": [4], "data_offsets": [24, 32]},
    "c": {"dtype": "I64", "shape": [], "data_offsets": [32, 40]},
    "d": {"dtype": "U8", "shape": [0, 7], "data_offsets": [40, 40]}})");
  const std::string data(40, 'x');
  std::uint64_t sum = 0;
  for_seeds(effort, [&](std::uint64_t seed) {
    Mutator mutator(seed);
    ordered_json header = original;
    std::string text;
    if (mutator.one_in(2)) {
      mutator.json(header);
      text = dumped(header);
    } else {
      text = mutator.bytes(dumped(header), header_words);
    }
    std::string file = safetensors(text, data);
    if (mutator.one_in(4)) file = mutator.bytes(file);
    folder.write("model.safetensors", file);
    const auto checkpoint = Checkpoint::open(folder.path());
    if (checkpoint.ok()) sum += sum_of(*checkpoint);
  });
  EXPECT_GT(sum, 0U) << "no changed file was taken";
}

void changed_model_configs(Effort effort) {
  const golden::TemporaryFolder folder;
  std::vector<ordered_json> configs;
  for (const auto& entry : std::filesystem::directory_iterator(golden::data_folder())) {
    for (const char* name : {"config.json", "config.v4.json"}) {
      if (!std::filesystem::exists(entry.path() / name)) continue;
      configs.push_back(ordered_json::parse(golden::file_bytes(entry.path() / name)));
    }
  }
  ASSERT_GT(configs.size(), 3U);
  REQUIRE_OK(const Mesh one, Mesh::create({}, 1));
  REQUIRE_OK(const Mesh several, Mesh::create({.data = 1, .pipeline = 2, .tensor = 2}, 2));
  REQUIRE_OK(const Checkpoint dummy, Checkpoint::dummy(DType::bf16));
  std::size_t taken = 0;
  for_seeds(effort, [&](std::uint64_t seed) {
    Mutator mutator(seed);
    ordered_json config = configs[mutator.below(configs.size())];
    for (std::size_t i = 0, changes = 1 + mutator.below(3); i < changes; ++i) mutator.json(config);
    folder.write("config.json",
                 mutator.one_in(20) ? mutator.bytes(dumped(config)) : dumped(config));
    ordered_json generation = {{"eos_token_id", {4095, 3}}, {"temperature", 0.7}, {"top_k", 20}};
    mutator.json(generation);
    folder.write("generation_config.json", dumped(generation));
    const auto defaults = GenerationDefaults::load(folder.path());
    const auto model = ModelConfig::load(folder.path());
    if (!model.ok()) return;
    if (defaults.ok()) eos_token_ids(*model, *defaults);
    for (const Mesh& mesh : {one, several}) {
      if (!check_model(*model, dummy, mesh).ok()) continue;
      ++taken;
      const auto footprint = rank_footprint(*model, dummy, mesh, 0, {});
      EXPECT_TRUE(footprint.ok()) << footprint.error().message << "\n" << config.dump();
    }
  });
  EXPECT_GT(taken, 0U);
}

}  // namespace troupe::fuzz
