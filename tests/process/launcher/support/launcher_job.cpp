#include "tests/process/launcher/support/launcher_job.hpp"

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <fstream>
#include <sstream>

#include <fmt/format.h>

namespace troupe::launcher_test {

namespace {

using nlohmann::json;

std::filesystem::path source_folder() { return TROUPE_SOURCE_DIR; }

std::string request_line(const std::string& id, const char* url, json own, const json& body) {
  own["model"] = "fable-moe";
  own.update(body);
  return json({{"custom_id", id}, {"method", "POST"}, {"url", url}, {"body", own}}).dump() + "\n";
}

std::string payload_of(const std::string& line) {
  const auto begin = line.find(",\"choices\":");
  const auto end = line.rfind("}},\"error\":null}");
  return begin == line.npos || end == line.npos ? "" : line.substr(begin + 1, end - begin - 1);
}

}  // namespace

std::filesystem::path demo_model() { return source_folder() / "configs/demo/fable-moe"; }
std::filesystem::path batch_folder() { return source_folder() / "tests/data/batch"; }
std::filesystem::path batches_folder() { return source_folder() / "tests/data/batches"; }

LauncherJob::LauncherJob(const std::filesystem::path& model)
    : work_(root_.path() / "work"), prints_(root_.path() / "prints") {
  std::filesystem::create_directory(work_);
  std::filesystem::create_directory(prints_);
  write_config(
      fmt::format("model: {{path: {}, served_model_name: [fable-moe]}}\n"
                  "job: {{input: in.jsonl, output: out.jsonl}}\n",
                  (model.empty() ? demo_model() : model).string()));
}

LauncherJob::~LauncherJob() {
  signal_processes_in(work_, SIGKILL);
  (void)processes_left_in(work_, std::chrono::seconds(5));
}

void LauncherJob::write_input(std::string_view text) const { root_.write("work/in.jsonl", text); }

void LauncherJob::write_config(std::string_view yaml) const {
  root_.write("work/cluster.yaml", yaml);
}

std::unique_ptr<LauncherProcess> LauncherJob::start(std::vector<std::string> arguments) const {
  const bool check = !arguments.empty() && arguments.front() == "check";
  arguments.insert(arguments.begin() + (check ? 1 : 0), {"--config", "cluster.yaml"});
  return std::make_unique<LauncherProcess>(arguments, work_, prints_);
}

Ended LauncherJob::run(std::vector<std::string> arguments) const {
  return start(std::move(arguments))->wait(run_limit);
}

Ended LauncherJob::run_plain(const std::vector<std::string>& arguments,
                             std::chrono::milliseconds limit) const {
  return LauncherProcess(arguments, work_, prints_).wait(limit);
}

Answers LauncherJob::answers() const {
  const std::string text = golden::file_bytes(output());
  EXPECT_TRUE(text.empty() || text.back() == '\n') << "the last line is torn: " << text;
  Answers answers;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    json record = json::parse(line, nullptr, false);
    if (!record.is_object()) {
      ADD_FAILURE() << "not a JSON object: " << line;
      continue;
    }
    const std::string id = record.at("custom_id").is_string()
                               ? record.at("custom_id").get<std::string>()
                               : fmt::format("line {}", record.at("line").get<int>());
    const bool fresh = answers.emplace(id, Answer{std::move(record), payload_of(line)}).second;
    EXPECT_TRUE(fresh) << "a second record for " << id;
  }
  return answers;
}

std::string LauncherJob::log(const std::string& name) const {
  return golden::file_bytes(work_ / "out.jsonl.job" / (name + ".log"));
}

int LauncherJob::first_token_ms() const {
  const std::string text = log();
  const std::string words = "first token ";
  const auto place = text.find(words);
  return place == text.npos ? -1 : std::atoi(text.c_str() + place + words.size());
}

std::vector<std::string> as_arguments(const std::vector<std::string>& settings) {
  std::vector<std::string> arguments;
  for (const std::string& setting : settings) {
    arguments.insert(arguments.end(), {"--set", setting});
  }
  return arguments;
}

Answers answers_to(std::string_view input, const std::vector<std::string>& settings, int code,
                   const std::filesystem::path& model) {
  const LauncherJob job(model);
  job.write_input(input);
  const Ended ended = job.run(as_arguments(settings));
  EXPECT_EQ(ended.code, code) << ended.describe();
  // Freeing a sanitizer's many gigabytes of shadow memory takes time after the process's own end.
  constexpr std::chrono::milliseconds patience(200 * (test::time_scale - 1));
  EXPECT_EQ(processes_left_in(job.folder(), patience), std::vector<std::string>());
  return job.answers();
}

std::string chat(const std::string& id, const std::string& question, const json& body) {
  const json own = {{"messages", {{{"role", "user"}, {"content", question}}}}};
  return request_line(id, "/v1/chat/completions", own, body);
}

std::string completion(const std::string& id, const json& prompt, const json& body) {
  return request_line(id, "/v1/completions", {{"prompt", prompt}}, body);
}

std::vector<json> json_lines(const std::filesystem::path& path) {
  std::vector<json> objects;
  std::ifstream file(path);
  EXPECT_TRUE(file.is_open()) << "cannot read " << path;
  for (std::string line; std::getline(file, line);) objects.push_back(json::parse(line));
  return objects;
}

std::string requests_of(const std::filesystem::path& file, std::size_t count, const json& extra) {
  std::string text;
  auto objects = json_lines(file);
  objects.resize(std::min(count, objects.size()));
  for (json& object : objects) {
    object["body"].update(extra);
    text += object.dump() + "\n";
  }
  return text;
}

void expect_same_payloads(const Answers& expected, const Answers& found, const std::string& how) {
  EXPECT_EQ(expected.size(), found.size()) << how;
  for (const auto& [id, answer] : expected) {
    const auto other = found.find(id);
    if (other == found.end()) {
      ADD_FAILURE() << how << ": no answer to " << id;
      continue;
    }
    EXPECT_FALSE(answer.payload.empty()) << id << ": " << answer.record;
    EXPECT_EQ(answer.payload, other->second.payload) << how << ": " << id;
  }
}

}  // namespace troupe::launcher_test
