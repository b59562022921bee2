#include "tests/process/launcher/support/reference_model.hpp"

#include <algorithm>

#include "tests/process/launcher/support/launcher_job.hpp"

namespace troupe::launcher_test {

Result<std::unique_ptr<ReferenceModel>> ReferenceModel::load() {
  TROUPE_TRY(golden::LoadedModel loaded, golden::load(demo_model(), DType::f32));
  return std::unique_ptr<ReferenceModel>(new ReferenceModel(std::move(loaded)));
}

Result<std::vector<float>> ReferenceModel::next_logits(const Ids& ids) {
  golden::Sequence sequence{.tokens = ids};
  const golden::Share share{&sequence, static_cast<std::int32_t>(ids.size()), 1};
  TROUPE_TRY(const Tensor logits, loaded_.runner->pass({&share, 1}));
  const auto values = logits.span<float>();
  std::vector<float> copy(values.begin(), values.end());
  loaded_.runner->release(sequence);
  return copy;
}

Result<Ids> ReferenceModel::greedy(const Ids& prompt, std::size_t count, const Edit& edit,
                                   const Ids& stops) {
  Ids output;
  while (output.size() < count) {
    Ids known = prompt;
    known.insert(known.end(), output.begin(), output.end());
    TROUPE_TRY(std::vector<float> logits, next_logits(known));
    edit(output, logits);
    output.push_back(golden::argmax(logits));
    if (std::ranges::find(stops, output.back()) != stops.end()) break;
  }
  return output;
}

}  // namespace troupe::launcher_test
