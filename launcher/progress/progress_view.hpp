#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace troupe {

/// What a job has done so far; all counts from its start.
struct ProgressState {
  double seconds = 0;       ///< since the job began; does not go back
  std::string phase;        ///< not empty before requests run: "loading fable-moe"
  std::uint64_t total = 0;  ///< lines of the input; 0: not known
  std::uint64_t done = 0;   ///< lines with an answer or an error
  std::uint64_t errors = 0;
  std::uint64_t before = 0;  ///< of `done`, by earlier runs of the job
  bool draining = false;     ///< no new requests are begun, so the end is not all lines' end
  std::uint64_t running = 0;
  std::uint64_t waiting = 0;
  std::uint64_t prompt_tokens = 0;    ///< computed
  std::uint64_t prefix_tokens = 0;    ///< of prompts, found in the prefix cache
  std::uint64_t output_tokens = 0;    ///< of requests that are done and of those that run
  std::uint64_t finished_tokens = 0;  ///< of them, of requests that are done
  std::uint64_t preemptions = 0;
  std::uint64_t max_preemptions = 0;  ///< of one sequence
  std::uint64_t swaps = 0;            ///< to host memory
  std::uint64_t drafts = 0;           ///< guessed tokens
  std::uint64_t accepted_drafts = 0;
  double kv_use = 0;              ///< of the KV blocks, 0..1
  double input_wait_seconds = 0;  ///< of `seconds`, with nothing to do before more input came
  /// The share of the last seconds that each rank spent in the model, 0..1; empty: not known.
  std::vector<double> rank_busy = {};
  /// Of the time with requests, that in which no step was inside the model, 0..1.
  std::optional<double> outside_model = {};
};

/// Turns states into text. No clock and no terminal: time is in the states, the width an argument.
/// Speeds are those of the last 5 seconds. The remaining time is that of the output tokens that are
/// still to come at the mean speed since the first request began; what was done before that counts
/// for nothing. A line that is left is taken to have as many tokens as those that are done, or as
/// those that run have already, whichever is more.
class ProgressView {
 public:
  /// Takes the newest state in; older than the last one is ignored.
  void update(const ProgressState& state);

  /// One or two lines for a terminal `columns` wide, none longer than columns - 1 (at least 1), the
  /// most important first; what does not fit is left out whole. From 100 columns on with a bar, and
  /// with up to four lines more of a bar per rank.
  std::vector<std::string> live_lines(int columns) const;

  /// One line for a log: everything, whatever its length.
  std::string log_line() const;

  /// One JSON object on one line for programs: "type": "progress", "state": "loading", "running" or
  /// "finished", and the fields that docs/operations.md lists. A number that is not known is null.
  /// With an `outcome` the job is at its end.
  std::string json_line(std::string_view outcome = {}) const;

  /// The sentence at the end: answers, errors, tokens, time and mean speeds, these without the time
  /// in which there was no input.
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
  double began_seconds_ = 0;  ///< when the phases before the first request were over
  std::uint64_t began_done_ = 0;
  bool began_ = false;
};

/// A message for people as a line of the same kind: {"type": "message", "text": ...}.
std::string json_message(std::string_view text);

/// 5 -> "5 s", 65 -> "1:05", 3700 -> "1:01:40".
std::string format_duration(double seconds);

/// 999 -> "999", 12345 -> "12.3k", 4200000 -> "4.2M".
std::string format_count(double count);

}  // namespace troupe
