#include "launcher/batch/input/batch_reader.hpp"

#include <map>

#include "tests/support/source_path.hpp"
#include "tests/unit/launcher/batch/temp_folder.hpp"

namespace troupe {
namespace {

const std::string data_folder = test::source_path("tests/data/batches/");

using BatchReading = TempFolder;

/// Reads a whole batch: custom_id (or "line N") -> "ok" or the error's code.
std::multimap<std::string, std::string> outcome(const std::string& path, LineIds answered = {}) {
  std::multimap<std::string, std::string> result;
  auto reader = BatchReader::open(path, {{"fable-moe"}, 0}, std::move(answered));
  if (!reader) return {{"open", reader.error().message}};
  for (;;) {
    auto item = reader->next();
    if (!item) return {{"read", item.error().message}};
    if (std::holds_alternative<BatchReader::End>(*item)) return result;
    if (const auto* error = std::get_if<LineError>(&*item)) {
      result.emplace(error->custom_id.value_or(fmt::format("line {}", error->line)), error->code);
    } else if (const auto* request = std::get_if<BatchRequest>(&*item)) {
      result.emplace(request->header.custom_id, "ok");
    } else {
      result.emplace("somewhere", "answered before");
    }
  }
}

using Outcome = std::multimap<std::string, std::string>;

TEST(BrokenBatches, get_an_error_for_the_broken_lines_and_keep_the_good_ones) {
  const std::vector<std::pair<std::string, Outcome>> table = {
      {"malformed-line",
       {{"r1", "ok"}, {"r2", "ok"}, {"line 3", "invalid_json"}, {"r4", "ok"}, {"r5", "ok"}}},
      {"missing-custom-id", {{"r1", "ok"}, {"line 2", "missing_custom_id"}, {"r3", "ok"}}},
      {"wrong-method",
       {{"r1", "ok"}, {"r2", "invalid_method"}, {"r3", "invalid_method"}, {"r4", "ok"}}},
      {"empty-file", {}},
      {"invalid-utf8", {{"r1", "ok"}, {"line 2", "invalid_utf8"}, {"r3", "ok"}}},
      {"max-tokens",
       {{"r1", "ok"},
        {"r2", "invalid_value"},
        {"r3", "invalid_value"},
        {"r4", "invalid_value"},
        {"r5", "invalid_value"},
        {"r6", "ok"}}},
      {"messages-empty",
       {{"r1", "ok"},
        {"r2", "invalid_value"},
        {"r3", "missing_field"},
        {"r4", "invalid_value"},
        {"r5", "ok"}}},
      {"unknown-model", {{"r1", "ok"}, {"r2", "model_not_found"}, {"r3", "ok"}, {"r4", "ok"}}},
      {"null-fields",
       {{"r1", "ok"},
        {"r2", "ok"},
        {"r3", "missing_field"},
        {"r4", "missing_field"},
        {"line 5", "missing_custom_id"},
        {"r6", "ok"}}},
      {"crlf-and-no-final-newline", {{"r1", "ok"}, {"r2", "ok"}, {"r3", "ok"}}},
  };
  for (const auto& [name, expected] : table) {
    EXPECT_EQ(outcome(data_folder + name + ".jsonl"), expected) << name;
  }
}

TEST(DemoBatch, has_48_requests_that_are_all_valid) {
  const Outcome lines = outcome(test::source_path("configs/demo/requests.jsonl"));
  EXPECT_EQ(lines.size(), 48U);
  for (const auto& [custom_id, code] : lines) EXPECT_EQ(code, "ok") << custom_id;
}

std::string request_line(std::string_view custom_id, std::string_view prompt) {
  return fmt::format(
      R"({{"custom_id":"{}","method":"POST","url":"/v1/completions","body":{{"prompt":"{}"}}}})",
      custom_id, prompt);
}

TEST_F(BatchReading, passes_a_request_of_5_mb_on_and_refuses_a_line_of_17_mib) {
  const std::string text =
      request_line("r1", "x") + "\n" + request_line("r2", std::string(5'000'000, 'w')) + "\n" +
      request_line("r3", std::string(17 << 20, 'w')) + "\n" + request_line("r4", "x");
  EXPECT_EQ(outcome(write("in", text)),
            (Outcome{{"r1", "ok"}, {"r2", "ok"}, {"line 3", "line_too_long"}, {"r4", "ok"}}));
}

TEST_F(BatchReading, refuses_a_custom_id_that_was_there_before_even_on_a_broken_line) {
  const std::string text = request_line("a", "x") + "\n" + request_line("b", "") + "\n" +
                           request_line("a", "y") + "\n" + request_line("b", "x") + "\n" +
                           request_line("A", "x") + "\n";
  EXPECT_EQ(outcome(write("in", text)), (Outcome{{"a", "ok"},
                                                 {"b", "invalid_value"},
                                                 {"a", "duplicate_custom_id"},
                                                 {"b", "duplicate_custom_id"},
                                                 {"A", "ok"}}));
}

TEST_F(BatchReading, leaves_out_what_an_earlier_run_has_answered_and_knows_duplicates_of_it) {
  const std::string text = request_line("a", "x") + "\n" + request_line("b", "x") + "\n" +
                           request_line("a", "y") + "\n{\n" + request_line("c", "") + "\n{\n" +
                           request_line("b", "z") + "\n";
  LineIds answered;
  answered.add_answer("a");
  answered.add_error(4, std::nullopt);
  answered.add_error(5, "c");
  answered.add_error(7, "b");
  EXPECT_EQ(outcome(write("in", text), std::move(answered)),
            (Outcome{{"somewhere", "answered before"},
                     {"b", "ok"},
                     {"a", "duplicate_custom_id"},
                     {"somewhere", "answered before"},
                     {"somewhere", "answered before"},
                     {"line 6", "invalid_json"},
                     {"somewhere", "answered before"}}));
}

}  // namespace
}  // namespace troupe
