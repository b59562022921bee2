#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <vector>

namespace troupe {

/// What a job has done so far; all counts from its start.
struct ProgressState {
  double seconds = 0;       ///< since the job began; does not go back
  std::string phase;        ///< not empty before requests run: "loading fable-moe"
  std::uint64_t total = 0;  ///< lines of the input; 0: not known
  std::uint64_t done = 0;   ///< lines with an answer or an error
  std::uint64_t errors = 0;
  std::uint64_t running = 0;
  std::uint64_t waiting = 0;
  std::uint64_t prompt_tokens = 0;  ///< computed
  std::uint64_t prefix_tokens = 0;  ///< of prompts, found in the prefix cache
  std::uint64_t output_tokens = 0;
  std::uint64_t preemptions = 0;
  std::uint64_t most_preemptions = 0;  ///< of one sequence
  std::uint64_t drafts = 0;            ///< guessed tokens
  std::uint64_t accepted_drafts = 0;
  double kv_use = 0;  ///< of the KV blocks, 0..1
};

/// Turns states into text. No clock and no terminal: time is in the states, the width an argument.
/// Speeds are those of the last 5 seconds, the remaining time follows from the job's mean.
class ProgressView {
 public:
  /// Takes the newest state in; older than the last one is ignored.
  void update(const ProgressState& state);

  /// One or two lines for a terminal `columns` wide, none longer than columns - 1 (at least 1), the
  /// most important first; what does not fit is left out whole.
  std::vector<std::string> live_lines(int columns) const;

  /// One line for a log: everything, whatever its length.
  std::string log_line() const;

  /// The sentence at the end: answers, errors, tokens, time and mean speeds.
  std::string summary() const;

 private:
  struct Sample {
    double seconds = 0;
    std::uint64_t prompt_tokens = 0;
    std::uint64_t output_tokens = 0;
  };
  double output_speed() const;
  double prompt_speed() const;
  std::string remaining() const;

  ProgressState state_;
  std::deque<Sample> samples_;
  double began_seconds_ = 0;  ///< when the phases before the first request were over
  bool began_ = false;
};

/// 5 -> "5 s", 65 -> "1:05", 3700 -> "1:01:40".
std::string format_duration(double seconds);

/// 999 -> "999", 12345 -> "12.3k", 4200000 -> "4.2M".
std::string format_count(double count);

}  // namespace troupe
