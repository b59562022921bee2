#include "launcher/eval/judge.hpp"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <unistd.h>

#include "actors/executor/answer_limits.hpp"
#include "launcher/eval/distributions.hpp"
#include "launcher/eval/eval_engine.hpp"
#include "launcher/eval/eval_figures.hpp"
#include "launcher/eval/eval_input.hpp"
#include "launcher/eval/layer_divergence.hpp"
#include "launcher/job/job_plan.hpp"
#include "launcher/report/write_file.hpp"
#include "runtime/base/log.hpp"
#include "runtime/process/cpu_affinity.hpp"
#include "runtime/process/temporary_folder.hpp"

namespace troupe {
namespace {

/// Answers with whole distributions take megabytes each.
constexpr std::size_t whole_at_once = 4;
/// The longest beginning of a window that greedy answers continue.
constexpr std::size_t max_greedy_prompt = 64;

void say(const std::string& text) { std::fprintf(stderr, "launcher: %s\n", text.c_str()); }

/// A request that scores its prompt and generates nothing.
Request scoring_request(std::vector<std::int32_t> ids, std::int64_t alternatives) {
  Request request;
  request.kind = PromptKind::token_ids;
  request.prompt_ids = std::move(ids);
  request.max_tokens = 0;
  request.temperature = 0.0F;
  request.prompt_logprobs = static_cast<std::int32_t>(alternatives);
  return request;
}

/// Finds out before anything is judged whether a file can be written. Empty: none.
Result<void> check_writable(const std::string& path) {
  if (path.empty()) return {};
  std::error_code ignored;
  const bool is_new = !std::filesystem::exists(path, ignored);
  errno = 0;
  if (!std::ofstream(path, std::ios::app)) return fail_errno(errno, "cannot write " + path);
  if (is_new) std::filesystem::remove(path, ignored);
  return {};
}

/// The answers of a model that are compared with another one's.
struct Answers {
  std::vector<std::vector<std::int32_t>> greedy;
  std::vector<std::vector<double>> choices;  ///< log-likelihoods
};

class Judge {
 public:
  Judge(const EvalOptions& options, StopSignals& signals, const TemporaryFolder& logs)
      : options_(options),
        signals_(signals),
        logs_(logs.path().string()),
        progress_(STDERR_FILENO, ProgressPrinter::mode_for(STDERR_FILENO, options.quiet, false,
                                                           std::getenv("TERM"))) {}

  /// Errors are refusals: nothing was started.
  Result<void> prepare();
  Result<ExitCode> judge();

 private:
  Result<void> plan(const ConfigSource& source);
  Result<void> choose_alternatives();
  std::size_t greedy_prompts() const;
  Result<void> judge_model(std::size_t number);
  Result<void> score_text(EvalEngine& engine, std::size_t number, ModelFigures& model);
  Result<void> compare(std::size_t window, const Completion& answer, std::size_t number);
  Result<void> answer_greedily(EvalEngine& engine, Answers& answers);
  Result<void> answer_tasks(EvalEngine& engine, Answers& answers);
  void compare_answers();
  Result<void> compare_layers();
  Result<void> write_figures() const;

  const EvalOptions& options_;
  StopSignals& signals_;
  std::string logs_;
  ProgressPrinter progress_;
  ProgressState state_;
  std::vector<JobPlan> plans_;
  EvalInput input_;
  std::vector<std::size_t> first_scored_;  ///< the number of tokens scored before each window
  std::int64_t alternatives_ = 0;          ///< of each position
  std::optional<DistributionFile> distributions_;  ///< of the first model
  std::size_t same_top_ = 0;
  std::vector<Answers> answers_;
  EvalFigures figures_;
};

Result<void> Judge::plan(const ConfigSource& source) {
  TROUPE_TRY(Config config, source.load(Purpose::check));
  TROUPE_TRY(JobPlan plan, plan_job(std::move(config), {.keeps_preprocessor = true}));
  TROUPE_CHECK(check_startable(plan));
  plans_.push_back(std::move(plan));
  return {};
}

Result<void> Judge::prepare() {
  TROUPE_CHECK(plan(options_.config));
  TROUPE_TRY(input_, read_eval_input(options_, plans_.front()));
  if (options_.against) {
    TROUPE_CHECK(plan(*options_.against));
    TROUPE_CHECK(check_same_tokens(options_, input_, plans_[0], plans_[1]));
    figures_.comparison.emplace();
    TROUPE_CHECK(choose_alternatives());
  }
  for (const std::string& path : {options_.json, options_.html}) {
    TROUPE_CHECK(check_writable(path));
  }
  std::size_t scored = 0;
  for (const Window& window : input_.windows) {
    first_scored_.push_back(std::exchange(scored, scored + window.scored()));
  }
  figures_.text = options_.text;
  figures_.tasks = options_.tasks;
  figures_.text_tokens = input_.tokens.size();
  figures_.windows = input_.windows.size();
  figures_.scored_tokens = input_.scored_tokens;
  figures_.options = options_.windows;
  figures_.max_increase = options_.max_increase;
  figures_.greedy_tokens = options_.greedy_tokens;
  state_.total = plans_.size() * (input_.requests() + greedy_prompts());
  return {};
}

Result<void> Judge::choose_alternatives() {
  if (input_.windows.empty()) return {};
  const std::int64_t vocabulary = plans_.front().model.vocab_size;
  const auto length = static_cast<std::int64_t>(input_.windows.front().length);
  alternatives_ = std::min(options_.top_tokens, vocabulary);
  figures_.comparison->top_tokens = alternatives_ == vocabulary ? 0 : alternatives_;
  if (length * (alternatives_ + 1) <= max_answer_scores) return {};
  return fail(ErrorCode::invalid_argument,
              "--top-tokens {} of windows of {} tokens are more than the {} log-probabilities that "
              "an answer may have: give less of either",
              alternatives_, length, max_answer_scores);
}

std::size_t Judge::greedy_prompts() const {
  if (!options_.against) return 0;
  return std::min(input_.windows.size(), static_cast<std::size_t>(options_.greedy_prompts));
}

Result<ExitCode> Judge::judge() {
  if (options_.against && !input_.windows.empty()) {
    TROUPE_TRY(distributions_, DistributionFile::create(
                                   std::filesystem::path(logs_) / "distributions", alternatives_));
  }
  for (std::size_t number = 0; number < plans_.size(); ++number) {
    TROUPE_CHECK(judge_model(number));
  }
  if (figures_.comparison) compare_answers();
  if (options_.layer_windows > 0) TROUPE_CHECK(compare_layers());
  std::fputs(to_table(figures_).c_str(), stdout);
  TROUPE_CHECK(write_figures());
  return figures_.passes() ? ExitCode::all_answered : ExitCode::finished_with_errors;
}

Result<void> Judge::judge_model(std::size_t number) {
  const JobPlan& plan = plans_[number];
  TROUPE_TRY(EvalEngine engine,
             EvalEngine::start(plan, {logs_, options_.log_level, signals_, progress_, state_}));
  ModelFigures& model = figures_.models.emplace_back();
  model.path = plan.config.model.path;
  model.dtype = to_string(plan.engine.dtype);
  if (plan.engine.encoding != WeightEncoding::plain) {
    model.dtype += ", weights " + plan.config.model.quantization;
  }
  if (const auto& is_asked = plan.engine.quantize_head) {
    model.dtype += *is_asked ? ", head in 8 bits" : ", head as it is";
  }
  if (!plan.kv_codes.empty()) model.dtype += ", KV " + plan.kv_codes;
  Answers& answers = answers_.emplace_back();
  if (!input_.windows.empty()) TROUPE_CHECK(score_text(engine, number, model));
  if (greedy_prompts() > 0) TROUPE_CHECK(answer_greedily(engine, answers));
  if (!input_.tasks.empty()) {
    TROUPE_CHECK(answer_tasks(engine, answers));
    model.tasks = choice_figures(input_.tasks, answers.choices);
  }
  return {};
}

Result<void> Judge::score_text(EvalEngine& engine, std::size_t number, ModelFigures& model) {
  std::vector<Request> requests;
  for (const Window& window : input_.windows) {
    const auto begin = input_.tokens.begin() + static_cast<std::ptrdiff_t>(window.begin);
    requests.push_back(scoring_request({begin, begin + static_cast<std::ptrdiff_t>(window.length)},
                                       figures_.comparison ? alternatives_ : 0));
  }
  std::size_t at_once = request_window(plans_[number].engine);
  if (alternatives_ > default_top_tokens) at_once = whole_at_once;
  model.window_nll.resize(input_.windows.size());
  double sum = 0;
  TROUPE_CHECK(engine.ask(
      std::move(requests), at_once, [&](std::size_t index, Completion& answer) -> Result<void> {
        const Window& window = input_.windows[index];
        if (answer.prompt_logprobs.size() + 1 != window.length) {
          return fail(ErrorCode::internal, "{} scores of a window of {} tokens",
                      answer.prompt_logprobs.size(), window.length);
        }
        double nll = 0;
        for (std::size_t i = window.first_scored; i < window.length; ++i) {
          nll -= answer.prompt_logprobs[i - 1].logprob;
        }
        sum += nll;
        model.window_nll[index] = nll / static_cast<double>(window.scored());
        return figures_.comparison ? compare(index, answer, number) : Result<void>();
      }));
  model.nll = sum / static_cast<double>(input_.scored_tokens);
  return {};
}

/// Keeps the first model's distributions; compares the second one's with them.
Result<void> Judge::compare(std::size_t index, const Completion& answer, std::size_t number) {
  const Window& window = input_.windows[index];
  const auto scored = std::span(answer.prompt_logprobs).subspan(window.first_scored - 1);
  if (number == 0) return distributions_->put(first_scored_[index], scored);
  TROUPE_TRY(const auto reference, distributions_->get(first_scored_[index], scored.size()));
  for (std::size_t i = 0; i < scored.size(); ++i) {
    const PositionDifference difference = compare_position(reference[i], scored[i]);
    figures_.comparison->kl += difference.kl / static_cast<double>(input_.scored_tokens);
    same_top_ += difference.same_top ? 1 : 0;
  }
  return {};
}

Result<void> Judge::answer_greedily(EvalEngine& engine, Answers& answers) {
  std::vector<Request> requests;
  for (std::size_t i = 0; i < greedy_prompts(); ++i) {
    const Window& window = input_.windows[i];
    const auto begin = input_.tokens.begin() + static_cast<std::ptrdiff_t>(window.begin);
    const std::size_t length = std::min(max_greedy_prompt, window.length / 2);
    Request request = scoring_request({begin, begin + static_cast<std::ptrdiff_t>(length)}, -1);
    const std::int64_t most = std::ranges::min(plans_, {}, [](const JobPlan& plan) {
                                return plan.engine.max_model_len;
                              }).engine.max_model_len;
    const std::int64_t room = most - static_cast<std::int64_t>(length);
    request.max_tokens = std::min(options_.greedy_tokens, room);
    request.ignore_eos = true;
    requests.push_back(std::move(request));
  }
  answers.greedy.resize(requests.size());
  const std::size_t at_once = requests.size();
  return engine.ask(std::move(requests), at_once,
                    [&](std::size_t index, Completion& answer) -> Result<void> {
                      answers.greedy[index] = std::move(answer.choices.at(0).token_ids);
                      return {};
                    });
}

Result<void> Judge::answer_tasks(EvalEngine& engine, Answers& answers) {
  struct Place {
    std::size_t task, choice;
  };
  std::vector<Request> requests;
  std::vector<Place> places;
  answers.choices.resize(input_.choices.size());
  for (std::size_t task = 0; task < input_.choices.size(); ++task) {
    answers.choices[task].resize(input_.choices[task].size());
    for (std::size_t choice = 0; choice < input_.choices[task].size(); ++choice) {
      requests.push_back(scoring_request(input_.choices[task][choice].ids, 0));
      places.push_back({task, choice});
    }
  }
  const std::size_t at_once = request_window(plans_.front().engine);
  return engine.ask(std::move(requests), at_once,
                    [&](std::size_t index, Completion& answer) -> Result<void> {
                      const auto [task, choice] = places[index];
                      const std::size_t begin = input_.choices[task][choice].begin;
                      double sum = 0;
                      for (std::size_t i = begin - 1; i < answer.prompt_logprobs.size(); ++i) {
                        sum += answer.prompt_logprobs[i].logprob;
                      }
                      answers.choices[task][choice] = sum;
                      return {};
                    });
}

void Judge::compare_answers() {
  Comparison& comparison = *figures_.comparison;
  if (input_.scored_tokens > 0) {
    comparison.top_agreement =
        static_cast<double>(same_top_) / static_cast<double>(input_.scored_tokens);
  }
  const auto& first = answers_[0].greedy;
  const auto& second = answers_[1].greedy;
  comparison.greedy_prompts = first.size();
  for (std::size_t i = 0; i < first.size(); ++i) {
    const auto alike = std::ranges::mismatch(first[i], second[i]).in1 - first[i].begin();
    comparison.greedy_divergence += static_cast<double>(alike) / static_cast<double>(first.size());
    if (first[i] == second[i]) ++comparison.greedy_alike;
  }
  if (input_.tasks.empty()) return;
  std::size_t same = 0;
  for (std::size_t i = 0; i < input_.tasks.size(); ++i) {
    const ChoiceTask& task = input_.tasks[i];
    same +=
        chosen(task, answers_[0].choices[i], false) == chosen(task, answers_[1].choices[i], false)
            ? 1
            : 0;
  }
  comparison.choice_agreement =
      static_cast<double>(same) / static_cast<double>(input_.tasks.size());
}

Result<void> Judge::compare_layers() {
  CalibrationText text;
  text.length = static_cast<std::int64_t>(input_.windows.front().length);
  for (const Window& window : input_.windows) {
    if (text.windows() == options_.layer_windows) break;
    const auto begin = input_.tokens.begin() + static_cast<std::ptrdiff_t>(window.begin);
    text.tokens.insert(text.tokens.end(), begin,
                       begin + static_cast<std::ptrdiff_t>(window.length));
  }
  const int threads = usable_cpu_count();
  const auto goes_on = [&](std::int64_t done, std::int64_t layers) {
    state_.phase = fmt::format("comparing layer {} of {}", done, layers);
    progress_.update(state_);
    return signals_.count() == 0;
  };
  TROUPE_TRY(figures_.comparison->layers,
             layer_divergences(plans_[0].config.model.path, plans_[1].config.model.path, text,
                               threads, goes_on));
  return {};
}

Result<void> Judge::write_figures() const {
  if (!options_.json.empty()) {
    // Paths may hold invalid UTF-8.
    const auto text =
        to_json(figures_).dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
    TROUPE_CHECK(write_file(options_.json, text + "\n"));
  }
  if (!options_.html.empty()) TROUPE_CHECK(write_file(options_.html, eval_page(figures_)));
  return {};
}

ExitCode refuse(const Error& error) {
  say(error.message);
  return ExitCode::refused;
}

}  // namespace

ExitCode run_eval(const EvalOptions& options) {
  auto signals = StopSignals::block();  // before any thread
  if (!signals.ok()) return refuse(signals.error());
  auto logs = TemporaryFolder::create("troupe-eval");
  if (!logs.ok()) return refuse(logs.error());
  const auto opened =
      log::open("launcher", (logs->path() / "launcher.log").string(), options.log_level);
  if (!opened.ok()) return refuse(opened.error());
  std::optional<Result<ExitCode>> judged;
  {
    Judge judge(options, *signals, *logs);
    if (auto prepared = judge.prepare(); !prepared.ok()) return refuse(prepared.error());
    judged = judge.judge();
  }
  if (judged->ok()) return **judged;
  if (judged->error().code == ErrorCode::cancelled && signals->count() > 0) {
    say("stopped by a signal; nothing was judged");
    return signals->count() > 1 ? ExitCode::interrupted : ExitCode::drained;
  }
  say(fmt::format("{}\nlogs: {}/", judged->error().message, logs->keep().string()));
  return ExitCode::failed;
}

}  // namespace troupe
