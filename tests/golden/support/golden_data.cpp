#include <algorithm>
#include <fstream>
#include <string>

#include <nlohmann/json.hpp>

#include "models/checkpoint/safetensors.hpp"
#include "models/json/json_file.hpp"
#include "tests/golden/support/golden_model.hpp"

namespace troupe::golden {

namespace {

template <class T>
Result<std::vector<T>> read_vector(const SafetensorsFile& file, const std::string& name) {
  TROUPE_TRY(const Tensor tensor, file.tensor(name));
  const std::span<T> values = tensor.span<T>();
  return std::vector<T>(values.begin(), values.end());
}

}  // namespace

Result<std::vector<GoldenPrompt>> read_prompts(const std::filesystem::path& path) {
  TROUPE_TRY(const SafetensorsFile file, SafetensorsFile::open(path));
  std::vector<GoldenPrompt> prompts;
  constexpr std::string_view suffix = ".input_ids";
  for (const std::string& name : file.names()) {
    if (!name.ends_with(suffix)) continue;
    GoldenPrompt prompt;
    prompt.id = name.substr(0, name.size() - suffix.size());
    TROUPE_TRY(prompt.ids, read_vector<std::int32_t>(file, name));
    TROUPE_TRY(prompt.last_logits, read_vector<float>(file, prompt.id + ".last_logits"));
    TROUPE_TRY(prompt.top_ids, read_vector<std::int32_t>(file, prompt.id + ".top_ids"));
    TROUPE_TRY(prompt.top_logprobs, read_vector<float>(file, prompt.id + ".top_logprobs"));
    if (prompt.ids.size() > 1) {
      TROUPE_TRY(prompt.prompt_logprobs, read_vector<float>(file, prompt.id + ".prompt_logprobs"));
    }
    prompts.push_back(std::move(prompt));
  }
  return prompts;
}

Result<std::vector<GoldenAnswer>> read_answers(const std::filesystem::path& path) {
  std::ifstream file(path);
  if (!file) return fail(ErrorCode::not_found, "{}: cannot read", path.string());
  constexpr double near_tie = 1e-3;
  std::vector<GoldenAnswer> answers;
  for (std::string line; std::getline(file, line);) {
    TROUPE_TRY(const nlohmann::json object, parse_json_object(line, path.string()));
    GoldenAnswer answer;
    answer.id = object.at("id").get<std::string>();
    answer.prompt = object.at("prompt_ids").get<std::vector<std::int32_t>>();
    answer.output = object.at("output_ids").get<std::vector<std::int32_t>>();
    const auto gaps = object.at("gaps").get<std::vector<double>>();
    const auto tie = std::ranges::find_if(gaps, [](double gap) { return gap < near_tie; });
    answer.safe_steps = static_cast<std::size_t>(tie - gaps.begin());
    const auto router = object.find("min_router_gap");
    if (router != object.end() && !router->is_null()) answer.min_router_gap = router->get<double>();
    answers.push_back(std::move(answer));
  }
  return answers;
}

Result<GoldenPerplexity> read_perplexity(const std::string& model) {
  TROUPE_TRY(const nlohmann::json object, read_json_object(data_folder() / "perplexity.json"));
  const nlohmann::json& figures = object.at("models").at(model);
  GoldenPerplexity perplexity;
  perplexity.nll_f32 = figures.at("float32").at("nll").get<double>();
  perplexity.nll_bf16 = figures.at("bfloat16").at("nll").get<double>();
  perplexity.window_nll = figures.at("window_nll_float32").get<std::vector<double>>();
  return perplexity;
}

Result<std::vector<std::vector<std::int32_t>>> read_windows() {
  TROUPE_TRY(const auto file, SafetensorsFile::open(data_folder() / "perplexity.safetensors"));
  TROUPE_TRY(const Tensor ids, file.tensor("window_ids"));
  std::vector<std::vector<std::int32_t>> windows;
  for (std::int64_t i = 0; i < ids[0]; ++i) {
    const std::span<std::int32_t> row = ids.rows(i, 1).span<std::int32_t>();
    windows.emplace_back(row.begin(), row.end());
  }
  return windows;
}

}  // namespace troupe::golden
