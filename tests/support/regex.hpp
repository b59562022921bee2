#pragma once

#include <string>
#include <vector>

namespace troupe::test {

// std::regex behind plain functions: under ASan each file that includes <regex> compiles for
// minutes. Patterns are those of ECMAScript; each call compiles its pattern anew.

/// A match: [0] is all of it, [1] and on are its groups.
using RegexMatch = std::vector<std::string>;

/// The first match anywhere in `text`; empty if there is none.
RegexMatch regex_search(const std::string& text, const std::string& pattern);
/// The match of the whole `text`; empty if there is none.
RegexMatch regex_match(const std::string& text, const std::string& pattern);
/// All matches, in order.
std::vector<RegexMatch> regex_search_all(const std::string& text, const std::string& pattern);
/// `text` with all matches replaced; `replacement` may name groups as $1.
std::string regex_replace(const std::string& text, const std::string& pattern,
                          const std::string& replacement);

}  // namespace troupe::test
