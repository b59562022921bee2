#include "launcher/batch/output/line_order.hpp"

#include <algorithm>
#include <utility>

namespace troupe {

void LineOrder::expect(std::size_t line) { slots_.push_back({line, std::nullopt}); }

void LineOrder::put(OutputLine line) {
  const auto slot = std::ranges::lower_bound(slots_, line.line, {}, &Slot::line);
  if (slot == slots_.end() || slot->line != line.line) return;
  kept_bytes_ += line.text.size();
  slot->output = std::move(line);
}

std::optional<OutputLine> LineOrder::take() {
  if (slots_.empty() || !slots_.front().output) return std::nullopt;
  std::optional<OutputLine> line = std::move(slots_.front().output);
  slots_.pop_front();
  kept_bytes_ -= line->text.size();
  return line;
}

}  // namespace troupe
