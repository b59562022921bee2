#pragma once

#include <chrono>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tests/process/launcher/support/launcher_process.hpp"
#include "tests/support/checkpoint_folder.hpp"
#include "tests/support/time_scale.hpp"

namespace troupe::launcher_test {

/// How long a run of the launcher may take.
constexpr std::chrono::milliseconds run_limit{60'000 * test::time_scale};

/// A line of an output file.
struct Answer {
  nlohmann::json record;
  std::string payload;  ///< the raw text from "choices" to the end of "usage"; empty for errors

  bool ok() const { return record.at("error").is_null(); }
  const nlohmann::json& body() const { return record.at("response").at("body"); }
  const nlohmann::json& choice() const { return body().at("choices").at(0); }
};

/// By custom_id, or "line N" for an error whose line has none.
using Answers = std::map<std::string, Answer>;

/// A job in a private folder: a cluster.yaml for one rank of fable-moe that reads in.jsonl and
/// writes out.jsonl. The destructor removes the folder and every process in it.
class LauncherJob {
 public:
  /// `model` is a checkpoint's folder; empty: the demo's fable-moe.
  explicit LauncherJob(const std::filesystem::path& model = {});
  ~LauncherJob();

  const std::filesystem::path& folder() const { return work_; }
  std::filesystem::path output() const { return work_ / "out.jsonl"; }

  void write_input(std::string_view text) const;
  void write_config(std::string_view yaml) const;

  /// Runs `launcher --config cluster.yaml ARGUMENTS`; "check" as the first of them stays first.
  Ended run(std::vector<std::string> arguments = {}) const;
  /// Runs `launcher ARGUMENTS`, for at most `limit`.
  Ended run_plain(const std::vector<std::string>& arguments,
                  std::chrono::milliseconds limit = run_limit) const;
  /// Starts `launcher --config cluster.yaml ARGUMENTS`.
  std::unique_ptr<LauncherProcess> start(std::vector<std::string> arguments = {}) const;

  /// Returns the output's answers; a torn line, one that is no JSON, or a repeated id fails the
  /// test.
  Answers answers() const;

  /// The text of the job's NAME.log.
  std::string log(const std::string& name = "launcher") const;

  /// The milliseconds from the start to the first token, from launcher.log; -1 if it has none.
  int first_token_ms() const;

 private:
  golden::TemporaryFolder root_;
  std::filesystem::path work_;
  std::filesystem::path prints_;
};

/// Puts --set before each of the settings.
std::vector<std::string> as_arguments(const std::vector<std::string>& settings);

/// Returns the answers to `input`; another exit status than `code` fails the test. `settings` are
/// values of --set.
Answers answers_to(std::string_view input, const std::vector<std::string>& settings = {},
                   int code = 0, const std::filesystem::path& model = {});

/// Request lines, with a newline; `body` is merged into the request's body.
std::string chat(const std::string& id, const std::string& question, const nlohmann::json& body);
std::string completion(const std::string& id, const nlohmann::json& prompt,
                       const nlohmann::json& body);

/// A file's lines as JSON objects.
std::vector<nlohmann::json> json_lines(const std::filesystem::path& file);

/// The first `count` requests of a batch file, each body with `extra` merged into it.
std::string requests_of(const std::filesystem::path& file, std::size_t count,
                        const nlohmann::json& extra = nlohmann::json::object());

std::filesystem::path demo_model();
std::filesystem::path batch_folder();    ///< tests/data/batch
std::filesystem::path batches_folder();  ///< tests/data/batches

/// Expects the payloads of `found` to equal those of `expected`, byte for byte.
void expect_same_payloads(const Answers& expected, const Answers& found, const std::string& how);

}  // namespace troupe::launcher_test
