#include "launcher/bench/throughput/workload.hpp"

#include <filesystem>
#include <random>
#include <utility>

#include "launcher/batch/input/batch_reader.hpp"
#include "launcher/bench/common/lengths_csv.hpp"

namespace troupe {
namespace {

constexpr std::int64_t default_prompts = 64;
constexpr std::size_t max_requests = 1 << 20;

struct Lengths {
  std::int64_t prompt = 0;
  std::int64_t output = 0;
};

std::string to_string(const LengthRange& range) {
  if (range.shortest == range.longest) return fmt::format("{}", range.shortest);
  return fmt::format("{} to {}", range.shortest, range.longest);
}

Result<void> check_length(std::string_view where, const Lengths& lengths,
                          const WorkloadBounds& bounds) {
  if (lengths.prompt + lengths.output <= bounds.max_model_len) return {};
  return fail(ErrorCode::invalid_argument,
              "{}: {} tokens of prompt and {} of answer are more than the context of {} "
              "(engine.max_model_len)",
              where, lengths.prompt, lengths.output, bounds.max_model_len);
}

/// Random numbers whose sequence is the same with every standard library.
class Random {
 public:
  explicit Random(std::uint64_t seed) : engine_(seed) {}
  /// Uniform in [least, most]; the bias of the remainder is below 2^-40 for ranges of tokens.
  std::int64_t within(std::int64_t least, std::int64_t most) {
    const auto choices = static_cast<std::uint64_t>(most - least + 1);
    return least + static_cast<std::int64_t>(engine_() % choices);
  }

 private:
  std::mt19937_64 engine_;
};

/// A seed for request `index`, different for every pair.
std::uint64_t request_seed(std::uint64_t seed, std::size_t index) {
  return seed * 0x9e3779b97f4a7c15ULL + index;
}

std::string choices_of(const BenchOptions& options) {
  if (options.temperature == 0.0F) return fmt::format("seed {}", options.seed);
  return fmt::format("seed {}, temperature {}", options.seed, options.temperature);
}

Workload random_workload(const std::vector<Lengths>& lengths, const BenchOptions& options,
                         const WorkloadBounds& bounds) {
  Workload workload;
  for (const Lengths& length : lengths) {
    const std::uint64_t seed = request_seed(options.seed, workload.requests.size());
    Request request = random_request(length.prompt, length.output, seed, bounds.vocab_size);
    request.temperature = options.temperature;
    request.seed = seed;
    workload.requests.push_back(std::move(request));
  }
  return workload;
}

Result<Workload> random_lengths(const BenchOptions& options, const WorkloadBounds& bounds) {
  TROUPE_CHECK(check_length("--input-len and --output-len",
                            {options.input_len.longest, options.output_len.longest}, bounds));
  Random random(options.seed);
  std::vector<Lengths> lengths(
      static_cast<std::size_t>(options.num_prompts.value_or(default_prompts)));
  for (Lengths& length : lengths) {
    length.prompt = random.within(options.input_len.shortest, options.input_len.longest);
    length.output = random.within(options.output_len.shortest, options.output_len.longest);
  }
  Workload workload = random_workload(lengths, options, bounds);
  workload.description = fmt::format("random, {} + {} tokens, {}", to_string(options.input_len),
                                     to_string(options.output_len), choices_of(options));
  return workload;
}

Result<Workload> csv_lengths(const BenchOptions& options, const WorkloadBounds& bounds) {
  const auto most =
      static_cast<std::size_t>(options.num_prompts.value_or(std::int64_t{max_requests}));
  TROUPE_TRY(const auto requests, read_lengths_csv(options.workload, most));
  std::vector<Lengths> lengths;
  for (const RequestLengths& request : requests) {
    lengths.push_back({request.prompt_tokens, request.max_tokens});
    TROUPE_CHECK(
        check_length(fmt::format("{}:{}", options.workload, request.line), lengths.back(), bounds));
  }
  Workload workload = random_workload(lengths, options, bounds);
  workload.description = fmt::format("lengths of {}, {}", options.workload, choices_of(options));
  return workload;
}

Result<Workload> batch_requests(const BenchOptions& options, const Config& config) {
  ParseContext context{config.model.served_model_name, static_cast<std::uint64_t>(config.job.seed)};
  TROUPE_TRY(auto reader, BatchReader::open(options.workload, std::move(context)));
  const auto most =
      static_cast<std::size_t>(options.num_prompts.value_or(std::int64_t{max_requests}));
  Workload workload;
  while (workload.requests.size() < most) {
    TROUPE_TRY(auto next, reader.next());
    if (std::holds_alternative<BatchReader::End>(next)) break;
    if (const auto* error = std::get_if<LineError>(&next)) {
      return fail(ErrorCode::invalid_argument, "{}:{}: {}", options.workload, error->line,
                  error->message);
    }
    if (auto* request = std::get_if<BatchRequest>(&next)) {
      workload.requests.push_back(std::move(request->request));
    }
  }
  workload.description = fmt::format("requests of {}", options.workload);
  return workload;
}

}  // namespace

Request random_request(std::int64_t prompt_tokens, std::int64_t output_tokens, std::uint64_t seed,
                       std::int64_t vocab_size) {
  Random random(seed);
  Request request;
  request.kind = PromptKind::token_ids;
  request.prompt_ids.reserve(static_cast<std::size_t>(prompt_tokens));
  for (std::int64_t i = 0; i < prompt_tokens; ++i) {
    request.prompt_ids.push_back(static_cast<std::int32_t>(random.within(0, vocab_size - 1)));
  }
  request.temperature = 0.0F;
  request.max_tokens = output_tokens;
  request.ignore_eos = true;
  return request;
}

Result<Workload> make_workload(const BenchOptions& options, const Config& config,
                               const WorkloadBounds& bounds) {
  if (options.workload.empty()) return random_lengths(options, bounds);
  const bool csv = std::filesystem::path(options.workload).extension() == ".csv";
  TROUPE_TRY(Workload workload,
             csv ? csv_lengths(options, bounds) : batch_requests(options, config));
  if (workload.requests.empty()) {
    return fail(ErrorCode::invalid_argument, "--workload {} has no requests", options.workload);
  }
  return workload;
}

Result<Workload> make_mixed_workload(BenchOptions options, const Config& config,
                                     const WorkloadBounds& bounds) {
  const float temperature = std::exchange(options.temperature, 0.0F);
  TROUPE_TRY(Workload workload, make_workload(options, config, bounds));
  const bool are_own = !options.workload.empty() && !options.workload.ends_with(".csv");
  if (are_own) return workload;
  for (std::size_t i = 1; i < workload.requests.size(); i += 2) {
    workload.requests[i].temperature = temperature;
  }
  workload.description += ", half greedy";
  return workload;
}

}  // namespace troupe
