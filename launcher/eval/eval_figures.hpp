#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "launcher/cli/eval_options.hpp"
#include "launcher/eval/choice_tasks.hpp"

namespace troupe {

/// A model's figures.
struct ModelFigures {
  std::string path;
  std::string dtype;               ///< that it computed in
  std::vector<double> window_nll;  ///< mean negative log-likelihood of each window, in nats
  double nll = 0;                  ///< mean over all scored tokens
  std::optional<ChoiceFigures> tasks = {};

  double perplexity() const;
};

/// How far the second model is from the first.
struct Comparison {
  double kl = 0;                ///< mean KL(second || first) over positions, in nats
  std::int64_t top_tokens = 0;  ///< alternatives that it is over; 0: the whole vocabulary
  double top_agreement = 0;     ///< share of positions
  std::size_t greedy_prompts = 0;
  std::size_t greedy_alike = 0;                 ///< prompts whose answers are the same to the end
  double greedy_divergence = 0;                 ///< mean number of first tokens that are the same
  std::optional<double> choice_agreement = {};  ///< share of tasks with the same choice
  std::vector<double> layers = {};  ///< how far the layers' outputs are; see layer_divergences
};

/// All that `launcher eval` finds.
struct EvalFigures {
  std::string text, tasks;  ///< files; empty: none
  std::size_t text_tokens = 0, windows = 0, scored_tokens = 0;
  WindowOptions options;
  std::vector<ModelFigures> models;  ///< one or two
  std::optional<Comparison> comparison = {};
  std::optional<double> max_increase = {};
  std::int64_t greedy_tokens = 0;

  /// The share by which the second model's perplexity is above the first's; below 0: it is lower.
  double perplexity_increase() const;
  /// False if it is above max_increase.
  bool passes() const;
};

/// What a person reads.
std::string to_table(const EvalFigures& figures);
nlohmann::ordered_json to_json(const EvalFigures& figures);
/// A self-contained page.
std::string eval_page(const EvalFigures& figures);

}  // namespace troupe
