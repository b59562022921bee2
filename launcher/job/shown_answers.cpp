#include "launcher/job/shown_answers.hpp"

#include <fmt/format.h>

namespace troupe {

void ShownAnswers::add(const RequestHeader& header, const Completion& completion) {
  if (texts_.size() >= most_ || completion.failed() || completion.choices.empty() ||
      completion.choices.front().text.empty()) {
    return;
  }
  texts_.push_back(fmt::format("{}: {}", header.custom_id, completion.choices.front().text));
}

void ShownAnswers::print(std::FILE* file) const {
  for (const std::string& text : texts_) std::fprintf(file, "\n%s\n", text.c_str());
  if (!texts_.empty()) std::fprintf(file, "\n");
}

}  // namespace troupe
