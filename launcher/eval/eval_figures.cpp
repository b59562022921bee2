#include "launcher/eval/eval_figures.hpp"

#include <cmath>

#include <fmt/format.h>

#include "launcher/report/page.hpp"
#include "launcher/report/report_html.hpp"

namespace troupe {
namespace {

using nlohmann::ordered_json;

std::string basis(const Comparison& comparison) {
  return comparison.top_tokens == 0 ? "the whole vocabulary"
                                    : fmt::format("the top {} and the rest", comparison.top_tokens);
}

std::string comparison_table(const EvalFigures& figures) {
  const Comparison& comparison = *figures.comparison;
  std::string text;
  if (figures.windows > 0) {
    text += fmt::format("perplexity increase     {:+.3f} %\n", 100 * figures.perplexity_increase());
    text += fmt::format("KL(second || first)     {:.6f} nats a token, over {}\n", comparison.kl,
                        basis(comparison));
    text += fmt::format("same likeliest token    {:.2f} % of {} positions\n",
                        100 * comparison.top_agreement, figures.scored_tokens);
  }
  if (comparison.greedy_prompts > 0) {
    text += fmt::format("greedy answers part     after {:.1f} of {} tokens; {} of {} never\n",
                        comparison.greedy_divergence, figures.greedy_tokens,
                        comparison.greedy_alike, comparison.greedy_prompts);
  }
  if (comparison.choice_agreement) {
    text += fmt::format("same choice             {:.2f} % of the tasks\n",
                        100 * *comparison.choice_agreement);
  }
  if (!comparison.layers.empty()) {
    const auto& layers = comparison.layers;
    std::size_t jump = 0;  // the layer that adds the most
    const auto added = [&](std::size_t i) { return layers[i] - (i > 0 ? layers[i - 1] : 0.0); };
    for (std::size_t i = 1; i < layers.size(); ++i) jump = added(i) > added(jump) ? i : jump;
    text += fmt::format(
        "layers' outputs         {:.2f} % apart after the last of {}; layer {} adds {:.2f} %\n",
        100 * layers.back(), layers.size(), jump, 100 * added(jump));
  }
  return text;
}

ordered_json model_json(const EvalFigures& figures, const ModelFigures& model) {
  ordered_json json = {{"model", model.path}, {"dtype", model.dtype}};
  if (figures.windows > 0) {
    json["nll"] = model.nll;
    json["perplexity"] = model.perplexity();
    json["window_nll"] = model.window_nll;
  }
  if (model.tasks) {
    json["acc"] = model.tasks->accuracy;
    json["acc_norm"] = model.tasks->normalized_accuracy;
  }
  return json;
}

}  // namespace

double ModelFigures::perplexity() const { return std::exp(nll); }

double EvalFigures::perplexity_increase() const {
  if (models.size() < 2) return 0;
  return std::exp(models[1].nll - models[0].nll) - 1;
}

bool EvalFigures::passes() const { return !max_increase || perplexity_increase() <= *max_increase; }

std::string to_table(const EvalFigures& figures) {
  std::string text;
  if (figures.windows > 0) {
    text += fmt::format("{}: {} tokens, {} windows of {} every {}, {} tokens scored\n",
                        figures.text, figures.text_tokens, figures.windows, figures.options.length,
                        figures.options.stride, figures.scored_tokens);
  }
  if (figures.models.front().tasks) {
    text += fmt::format("{}: {} tasks\n", figures.tasks, figures.models.front().tasks->tasks);
  }
  text += "\n";
  if (figures.windows > 0) text += fmt::format("{:>12}{:>12}", "perplexity", "NLL");
  if (figures.models.front().tasks) text += fmt::format("{:>9}{:>10}", "acc", "acc_norm");
  text += "  model\n";
  for (const ModelFigures& model : figures.models) {
    if (figures.windows > 0)
      text += fmt::format("{:>12.4f}{:>12.6f}", model.perplexity(), model.nll);
    if (model.tasks) {
      text +=
          fmt::format("{:>9.4f}{:>10.4f}", model.tasks->accuracy, model.tasks->normalized_accuracy);
    }
    text += fmt::format("  {} ({})\n", model.path, model.dtype);
  }
  if (figures.comparison) text += fmt::format("\n{}", comparison_table(figures));
  if (figures.max_increase) {
    text += fmt::format("\n{}: at most {:+.3f} % is allowed\n",
                        figures.passes() ? "passed" : "FAILED", 100 * *figures.max_increase);
  }
  return text;
}

ordered_json to_json(const EvalFigures& figures) {
  ordered_json json;
  if (figures.windows > 0) {
    json["text"] = {{"file", figures.text},
                    {"tokens", figures.text_tokens},
                    {"length", figures.options.length},
                    {"stride", figures.options.stride},
                    {"windows", figures.windows},
                    {"scored_tokens", figures.scored_tokens}};
  }
  if (figures.models.front().tasks) {
    json["tasks"] = {{"file", figures.tasks}, {"tasks", figures.models.front().tasks->tasks}};
  }
  json["models"] = ordered_json::array();
  for (const ModelFigures& model : figures.models) {
    json["models"].push_back(model_json(figures, model));
  }
  if (figures.comparison) {
    const Comparison& comparison = *figures.comparison;
    ordered_json& out = json["comparison"];
    if (figures.windows > 0) {
      out["perplexity_increase"] = figures.perplexity_increase();
      out["kl_second_from_first"] = comparison.kl;
      out["kl_over"] = basis(comparison);
      out["top1_agreement"] = comparison.top_agreement;
    }
    if (comparison.greedy_prompts > 0) {
      out["greedy"] = {{"prompts", comparison.greedy_prompts},
                       {"tokens", figures.greedy_tokens},
                       {"mean_tokens_alike", comparison.greedy_divergence},
                       {"alike_to_the_end", comparison.greedy_alike}};
    }
    if (!comparison.layers.empty()) out["layers"] = comparison.layers;
    if (comparison.choice_agreement) out["choice_agreement"] = *comparison.choice_agreement;
  }
  if (figures.max_increase) {
    json["gate"] = {{"max_perplexity_increase", *figures.max_increase},
                    {"passed", figures.passes()}};
  }
  return json;
}

std::string eval_page(const EvalFigures& figures) {
  ordered_json data = to_json(figures);
  data["table"] = to_table(figures);
  return html_page("Troupe: eval", eval_page_part, data);
}

}  // namespace troupe
