#include "launcher/progress/progress_view.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "runtime/base/terminal_text.hpp"

namespace troupe {
namespace {

using nlohmann::ordered_json;

constexpr double speed_window_seconds = 5;
constexpr int steady_columns = 80;
constexpr int wide_columns = 100;
constexpr std::size_t bar_cells = 30;
constexpr std::size_t rank_bar_cells = 10;
constexpr std::size_t max_rank_lines = 4;

std::string plural(std::uint64_t count, std::string_view noun) {
  return fmt::format("{} {}{}", count, noun, count == 1 ? "" : "s");
}

double ratio(double amount, double seconds) { return seconds > 0 ? amount / seconds : 0; }

/// Joins the parts that fit in `room` columns, in order, and stops at the first that does not fit.
std::string fitted(const std::vector<std::string>& parts, std::size_t room) {
  constexpr std::string_view separator = "  ";
  std::string line;
  for (const std::string& part : parts) {
    const std::size_t length = line.empty() ? part.size() : line.size() + 2 + part.size();
    if (length > room) break;
    if (!line.empty()) line += separator;
    line += part;
  }
  return line;
}

/// "######----": the share of `cells` that is full.
std::string bar(double share, std::size_t cells) {
  const double full = std::round(std::clamp(share, 0.0, 1.0) * static_cast<double>(cells));
  const auto count = static_cast<std::size_t>(full);
  return std::string(count, '#') + std::string(cells - count, '-');
}

/// Rounds to thousandths, enough for plots.
double rounded(double value) {
  return std::isfinite(value) ? std::round(value * 1000) / 1000 : 0.0;
}

/// Prints on one line, whatever bytes the texts hold.
std::string one_line(const ordered_json& object) {
  return object.dump(-1, ' ', false, ordered_json::error_handler_t::replace);
}

/// `steady`: padded to a constant width.
std::string done_of_total(const ProgressState& state, bool steady) {
  if (state.total == 0) return fmt::format("{} done", state.done);
  const auto percent = static_cast<int>(100 * std::min(state.done, state.total) / state.total);
  const std::string total = fmt::format("{}", state.total);
  return fmt::format("{:>{}}/{} ({:>{}}%)", state.done, steady ? total.size() : 0, total, percent,
                     steady ? 2 : 0);
}

}  // namespace

std::string format_duration(double seconds) {
  if (!(seconds > 0)) return "0 s";
  const auto whole = static_cast<std::uint64_t>(std::min(std::round(seconds), 1e9));
  if (whole < 60) return fmt::format("{} s", whole);
  if (whole < 3600) return fmt::format("{}:{:02}", whole / 60, whole % 60);
  return fmt::format("{}:{:02}:{:02}", whole / 3600, whole / 60 % 60, whole % 60);
}

std::string format_count(double count) {
  if (!(count > 0)) return "0";
  if (count < 999.5) return fmt::format("{:.0f}", count);
  if (count < 999950) return fmt::format("{:.1f}k", count / 1e3);
  if (count < 999950000) return fmt::format("{:.1f}M", count / 1e6);
  return fmt::format("{:.1f}G", count / 1e9);
}

void ProgressView::update(const ProgressState& state) {
  if (!samples_.empty() && state.seconds < samples_.back().seconds) return;
  state_ = state;
  if (!began_ && state.phase.empty()) {
    began_ = true;
    began_seconds_ = state.seconds;
    began_done_ = state.done;
  }
  samples_.push_back({state.seconds, state.prompt_tokens, state.output_tokens});
  // The first sample kept is the youngest that is at least a window old.
  while (samples_.size() > 2 && samples_[1].seconds <= state.seconds - speed_window_seconds) {
    samples_.pop_front();
  }
}

double ProgressView::output_speed() const {
  if (samples_.size() < 2) return 0;
  const double tokens = static_cast<double>(samples_.back().output_tokens) -
                        static_cast<double>(samples_.front().output_tokens);
  return std::max(0.0, ratio(tokens, samples_.back().seconds - samples_.front().seconds));
}

double ProgressView::prompt_speed() const {
  if (samples_.size() < 2) return 0;
  const double tokens = static_cast<double>(samples_.back().prompt_tokens) -
                        static_cast<double>(samples_.front().prompt_tokens);
  return std::max(0.0, ratio(tokens, samples_.back().seconds - samples_.front().seconds));
}

std::optional<double> ProgressView::remaining_seconds() const {
  const double spent = state_.seconds - began_seconds_;
  if (!began_ || state_.draining) return std::nullopt;
  if (state_.done <= began_done_ || state_.done >= state_.total) return std::nullopt;
  const auto done = static_cast<double>(state_.done - began_done_);
  const auto left = static_cast<double>(state_.total - state_.done);
  const auto finished = static_cast<double>(state_.finished_tokens);
  const auto generated = static_cast<double>(state_.output_tokens);
  const double under_way = std::max(0.0, generated - finished);
  if (generated <= 0) return spent * left / done;  // error lines alone so far
  const double tokens_a_line =
      std::max(finished / done, ratio(under_way, static_cast<double>(state_.running)));
  // Requests that run longer than expected have at least one token left each.
  const double tokens_left =
      std::max(left * tokens_a_line - under_way, static_cast<double>(state_.running));
  return spent * tokens_left / generated;
}

std::string ProgressView::remaining() const {
  const auto seconds = remaining_seconds();
  return seconds ? format_duration(*seconds) : "";
}

std::vector<std::string> ProgressView::rank_lines(std::size_t room) const {
  const std::vector<double>& busy = state_.rank_busy;
  if (busy.empty()) return {};
  std::vector<std::string> lines;
  std::string line;
  for (std::size_t rank = 0; rank < busy.size(); ++rank) {
    const std::string part =
        fmt::format("rank {:<3} {} {:>3.0f}%", rank, bar(busy[rank], rank_bar_cells),
                    100 * std::clamp(busy[rank], 0.0, 1.0));
    if (!line.empty() && line.size() + 3 + part.size() > room) {
      lines.push_back(std::exchange(line, {}));
    }
    line += (line.empty() ? "" : "   ") + part;
  }
  lines.push_back(line);
  if (lines.size() <= max_rank_lines) return lines;
  const auto [least, most] = std::minmax_element(busy.begin(), busy.end());
  const double sum = std::accumulate(busy.begin(), busy.end(), 0.0);
  return {fmt::format("{} ranks  {} {:.0f}% busy on average, {:.0f}% to {:.0f}%", busy.size(),
                      bar(sum / static_cast<double>(busy.size()), rank_bar_cells),
                      100 * sum / static_cast<double>(busy.size()), 100 * *least, 100 * *most)};
}

std::vector<std::string> ProgressView::live_lines(int columns) const {
  const auto room = static_cast<std::size_t>(std::max(columns - 1, 1));
  if (!state_.phase.empty()) {
    const std::string phase = printable(state_.phase);
    const std::string line = fmt::format("{}  {}", phase, format_duration(state_.seconds));
    return {width_of(line) <= room ? line : std::string(beginning_of(phase, room))};
  }
  // With enough columns, numbers keep their positions while they grow.
  const bool steady = columns >= steady_columns;
  const auto wide_as = [steady](int width) { return steady ? width : 0; };
  std::vector<std::string> first = {done_of_total(state_, steady)};
  if (const std::string eta = remaining(); !eta.empty()) {
    first.push_back(fmt::format("{:>{}} left", eta, wide_as(5)));
  }
  if (state_.errors > 0) first.push_back(plural(state_.errors, "error"));
  first.push_back(format_duration(state_.seconds) + " so far");
  const std::vector<std::string> second = {
      fmt::format("{:>{}} tok/s", format_count(output_speed()), wide_as(5)),
      fmt::format("{:>{}} running", state_.running, wide_as(4)),
      fmt::format("{:>{}} waiting", state_.waiting, wide_as(4)),
      fmt::format("KV {:>{}.0f}%", 100 * std::clamp(state_.kv_use, 0.0, 1.0), wide_as(3)),
      fmt::format("prompts {:>{}} tok/s", format_count(prompt_speed()), wide_as(5)),
  };
  const bool wide = columns >= wide_columns;
  if (wide && state_.total > 0) {
    const double share = static_cast<double>(state_.done) / static_cast<double>(state_.total);
    first.insert(first.begin(), fmt::format("[{}]", bar(share, bar_cells)));
  }
  std::vector<std::string> lines;
  if (!state_.notice.empty()) {
    lines.emplace_back(beginning_of(printable(state_.notice), room));
  }
  lines.push_back(fitted(first, room));
  if (lines.back().empty()) lines.back() = done_of_total(state_, false).substr(0, room);
  if (std::string line = fitted(second, room); !line.empty()) lines.push_back(std::move(line));
  if (wide) {
    for (std::string& line : rank_lines(room)) lines.push_back(std::move(line));
  }
  return lines;
}

std::string ProgressView::json_line(std::string_view outcome) const {
  ordered_json line;
  line["type"] = "progress";
  line["state"] = !outcome.empty() ? "finished" : state_.phase.empty() ? "running" : "loading";
  if (!outcome.empty()) line["outcome"] = outcome;
  line["notice"] = state_.notice;
  line["seconds"] = rounded(state_.seconds);
  line["done"] = state_.done;
  line["total"] = state_.total > 0 ? ordered_json(state_.total) : ordered_json();
  line["errors"] = state_.errors;
  const auto left = remaining_seconds();
  line["remaining_seconds"] = left ? ordered_json(rounded(*left)) : ordered_json();
  line["running"] = state_.running;
  line["waiting"] = state_.waiting;
  line["kv_use"] = rounded(state_.kv_use);
  line["output_tokens"] = state_.output_tokens;
  line["output_tokens_per_second"] = rounded(output_speed());
  line["prompt_tokens"] = state_.prompt_tokens;
  line["prompt_tokens_per_second"] = rounded(prompt_speed());
  line["prefix_tokens"] = state_.prefix_tokens;
  line["preemptions"] = state_.preemptions;
  line["swaps"] = state_.swaps;
  line["rank_busy"] = ordered_json::array();
  for (const double share : state_.rank_busy) line["rank_busy"].push_back(rounded(share));
  return one_line(line);
}

std::string json_message(std::string_view text) {
  return one_line({{"type", "message"}, {"text", text}});
}

std::string ProgressView::log_line() const {
  if (!state_.phase.empty()) {
    return fmt::format("{}, {}", printable(state_.phase), format_duration(state_.seconds));
  }
  const std::string eta = remaining();
  return fmt::format(
      "{}{}, {}, {} output tok/s, {} prompt tok/s, {} running, {} waiting, KV {:.0f}%{}",
      state_.notice.empty() ? "" : printable(state_.notice) + "; ", done_of_total(state_, false),
      plural(state_.errors, "error"), format_count(output_speed()), format_count(prompt_speed()),
      state_.running, state_.waiting, 100 * std::clamp(state_.kv_use, 0.0, 1.0),
      eta.empty() ? "" : ", " + eta + " left");
}

std::string ProgressView::summary() const {
  const double spent = state_.seconds - began_seconds_ - state_.input_wait_seconds;
  const std::uint64_t answers = state_.done - std::min(state_.errors, state_.done);
  std::string result = plural(answers, "answer");
  if (state_.errors > 0) result += fmt::format(" and {}", plural(state_.errors, "error line"));
  if (state_.total > state_.done) result += fmt::format(" of {} lines", state_.total);
  if (state_.before > 0) result += fmt::format(", {} of them before this run,", state_.before);
  const bool brief = state_.seconds > 0 && state_.seconds < 9.95;
  const auto time = [brief](double seconds) {
    return brief ? fmt::format("{:.1f} s", seconds) : format_duration(seconds);
  };
  result += " in " + time(state_.seconds);
  if (state_.input_wait_seconds >= 1) {
    result += fmt::format(" ({} waiting for input)", time(state_.input_wait_seconds));
  }
  if (state_.output_tokens == 0 || !began_) return result;
  result += fmt::format(
      "; {} output tokens at {} tok/s, {} prompt tokens at {} tok/s", state_.output_tokens,
      format_count(ratio(static_cast<double>(state_.output_tokens), spent)), state_.prompt_tokens,
      format_count(ratio(static_cast<double>(state_.prompt_tokens), spent)));
  if (state_.prefix_tokens > 0) {
    result += fmt::format(", {} found in the prefix cache", state_.prefix_tokens);
  }
  if (state_.outside_model) {
    result += fmt::format(", time outside the model: {:.0f} %", 100 * *state_.outside_model);
  }
  if (state_.preemptions > 0) {
    result += fmt::format(", {} (of one request up to {})",
                          plural(state_.preemptions, "preemption"), state_.max_preemptions);
  }
  if (state_.swaps > 0) {
    result += fmt::format(", {} to host memory", plural(state_.swaps, "swap"));
  }
  if (state_.drafts > 0) {
    result +=
        fmt::format(", {} of {} guessed tokens accepted", state_.accepted_drafts, state_.drafts);
  }
  return result;
}

}  // namespace troupe
