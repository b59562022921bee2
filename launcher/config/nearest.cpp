#include "launcher/config/nearest.hpp"

#include <algorithm>
#include <cctype>
#include <string>
#include <vector>

namespace troupe {
namespace {

std::string folded(std::string_view word) {
  std::string result(word);
  for (char& c : result) {
    c = c == '-' ? '_' : static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  }
  return result;
}

}  // namespace

std::size_t edit_distance(std::string_view a, std::string_view b) {
  // Three rows of the usual table: a swap of adjacent letters looks two rows back.
  std::vector<std::size_t> before(b.size() + 1), last(b.size() + 1), row(b.size() + 1);
  for (std::size_t j = 0; j <= b.size(); ++j) last[j] = j;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t substitution = last[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1);
      row[j] = std::min({last[j] + 1, row[j - 1] + 1, substitution});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
        row[j] = std::min(row[j], before[j - 2] + 1);
      }
    }
    before.swap(last);
    last.swap(row);
  }
  return last[b.size()];
}

std::string_view nearest(std::string_view word, std::span<const std::string_view> known) {
  constexpr std::size_t longest_sensible_word = 100;
  if (word.empty() || word.size() > longest_sensible_word) return {};
  const std::string wanted = folded(word);
  std::string_view best;
  std::size_t best_distance = 0;
  for (std::string_view candidate : known) {
    const std::size_t distance = edit_distance(wanted, folded(candidate));
    const std::size_t limit = std::max<std::size_t>(1, std::max(word.size(), candidate.size()) / 3);
    if (distance > limit || (!best.empty() && distance >= best_distance)) continue;
    best = candidate;
    best_distance = distance;
  }
  return best;
}

}  // namespace troupe
