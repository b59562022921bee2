#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "tests/golden/support/golden_model.hpp"

namespace troupe::launcher_test {

using Ids = std::vector<std::int32_t>;

/// The demo's model in this process, one sequence at a time, to compare the launcher's answers
/// with.
class ReferenceModel {
 public:
  static Result<std::unique_ptr<ReferenceModel>> load();

  /// The logits of the token after `ids`.
  Result<std::vector<float>> next_logits(const Ids& ids);

  /// Returns `count` tokens after `prompt`, or up to and including the first of `stops`: each the
  /// best of the logits edited by `edit`, given the tokens so far.
  using Edit = std::function<void(const Ids& output, std::vector<float>& logits)>;
  Result<Ids> greedy(const Ids& prompt, std::size_t count, const Edit& edit, const Ids& stops = {});

 private:
  explicit ReferenceModel(golden::LoadedModel loaded) : loaded_(std::move(loaded)) {}

  golden::LoadedModel loaded_;
};

}  // namespace troupe::launcher_test
