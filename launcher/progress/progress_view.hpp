#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace troupe {

/// A job's progress; all counts from its start.
struct ProgressState {
  double seconds = 0;       ///< since the job began; does not go back
  std::string phase;        ///< not empty before requests run: "loading fable-moe"
  std::string notice;       ///< what the job waits for while requests run; often empty
  std::uint64_t total = 0;  ///< lines of the input; 0: not known
  std::uint64_t done = 0;   ///< lines with an answer or an error
  std::uint64_t errors = 0;
  std::uint64_t before = 0;  ///< part of `done`, from earlier runs of the job
  bool draining = false;     ///< no new requests are begun, so the job ends before all lines are
                             ///< done
  std::uint64_t running = 0;
  std::uint64_t waiting = 0;
  std::uint64_t prompt_tokens = 0;    ///< computed
  std::uint64_t prefix_tokens = 0;    ///< of prompts, found in the prefix cache
  std::uint64_t output_tokens = 0;    ///< of finished and running requests
  std::uint64_t finished_tokens = 0;  ///< of finished requests
  std::uint64_t preemptions = 0;
  std::uint64_t max_preemptions = 0;  ///< of one sequence
  std::uint64_t swaps = 0;            ///< to host memory
  std::uint64_t drafts = 0;           ///< guessed tokens
  std::uint64_t accepted_drafts = 0;
  double kv_use = 0;              ///< of the KV blocks, 0..1
  double input_wait_seconds = 0;  ///< part of `seconds` with nothing to do until more input came
  /// The share of the last seconds that each rank spent in the model, 0..1; empty: not known.
  std::vector<double> rank_busy = {};
  /// The share of the time with requests in which no step was inside the model, 0..1.
  std::optional<double> outside_model = {};
};

/// Turns states into text. No clock and no terminal: time is in the states, the width an argument.
/// Speeds are those of the last 5 seconds. The remaining time is that of the remaining output
/// tokens at the mean speed since the first request began; work done before that does not count. A
/// remaining line is assumed to have as many tokens as the finished ones, or as the running ones
/// have already, whichever is more.
class ProgressView {
 public:
  /// Takes the newest state; ignores one older than the last.
  void update(const ProgressState& state);

  /// One or two lines for a terminal `columns` wide, none longer than columns - 1 (at least 1), the
  /// most important first; what does not fit is omitted entirely. Before them a notice, if there is
  /// one. From 100 columns on with a bar, and up to four more lines with a bar per rank.
  std::vector<std::string> live_lines(int columns) const;

  /// One line for a log: everything, at any length.
  std::string log_line() const;

  /// One JSON object on one line for programs: "type": "progress", "state": "loading", "running" or
  /// "finished", and the fields that docs/operations.md lists. An unknown number is null. An
  /// `outcome` means that the job has ended.
  std::string json_line(std::string_view outcome = {}) const;

  /// The final sentence: answers, errors, tokens, time and mean speeds, which exclude the time
  /// without input.
  std::string summary() const;

 private:
  struct Sample {
    double seconds = 0;
    std::uint64_t prompt_tokens = 0;
    std::uint64_t output_tokens = 0;
  };
  double output_speed() const;
  double prompt_speed() const;
  std::optional<double> remaining_seconds() const;
  std::string remaining() const;
  std::vector<std::string> rank_lines(std::size_t room) const;

  ProgressState state_;
  std::deque<Sample> samples_;
  double began_seconds_ = 0;  ///< when the phases before the first request ended
  std::uint64_t began_done_ = 0;
  bool began_ = false;
};

/// A message for people as a JSON line: {"type": "message", "text": ...}.
std::string json_message(std::string_view text);

/// 5 -> "5 s", 65 -> "1:05", 3700 -> "1:01:40".
std::string format_duration(double seconds);

/// 999 -> "999", 12345 -> "12.3k", 4200000 -> "4.2M".
std::string format_count(double count);

}  // namespace troupe
