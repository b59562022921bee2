#include "tests/golden/support/numbers_of_codes.hpp"

#include <functional>
#include <map>
#include <string>
#include <string_view>

#include "models/families/family.hpp"
#include "models/layers/weights/parameters.hpp"
#include "tests/support/coded_numbers.hpp"

namespace troupe::golden {

Result<LoadedModel> load_numbers(const std::filesystem::path& folder, bool rounds) {
  TROUPE_TRY(const ModelConfig config, load_model_config(folder));
  TROUPE_TRY(const Checkpoint checkpoint, Checkpoint::open(folder));
  std::map<std::string, HostTensor, std::less<>> numbers;
  for (const WeightUse& use : weights_in_use(config, weight_rules_of(config))) {
    const std::string name = checkpoint_name(*use.rule, use.layer, use.expert);
    const Shape shape = stored_shape(*use.rule, config);
    if (shape.rank() != 2) continue;
    const auto stored = checkpoint.stored_weight(name, shape);
    if (!stored.ok() || stored->format == nullptr) continue;
    StoredMatrix matrix = whole_matrix(*stored, shape[0], shape[1]);
    matrix.dtype = DType::f32;
    const auto form = coded_form(matrix, WeightEncoding::plain).form;
    numbers[name] = rounds || !form ? in_host_memory(matrix) : numbers_of(matrix, *form);
  }
  return load_substituted(folder, DType::f32, [&](std::string_view name) {
    const auto found = numbers.find(name);
    return found != numbers.end() ? std::optional<Tensor>(found->second.view()) : std::nullopt;
  });
}

bool multiplies_codes(const LoadedModel& loaded) {
  return !loaded.ops->memory().available().has_value();
}

}  // namespace troupe::golden
