#pragma once

#include <cstddef>
#include <cstdio>
#include <string>
#include <vector>

#include "actors/api/request.hpp"
#include "launcher/batch/input/request_parser.hpp"

namespace troupe {

/// The texts of a job's first answers, which --show-answers prints at the end.
class ShownAnswers {
 public:
  /// Keeps `most` texts at most.
  explicit ShownAnswers(std::size_t most) : most_(most) {}

  /// Keeps the first choice's text, if there is room and it has a text.
  void add(const RequestHeader& header, const Completion& completion);

  /// Prints a paragraph for each, with its custom_id.
  void print(std::FILE* file) const;

 private:
  std::size_t most_;
  std::vector<std::string> texts_;
};

}  // namespace troupe
