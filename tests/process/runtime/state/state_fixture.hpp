#pragma once

#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <functional>
#include <sstream>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "runtime/process/child_process.hpp"
#include "runtime/state/cluster_file.hpp"
#include "tests/process/runtime/actor/test_actors.hpp"
#include "tests/support/temporary_folder.hpp"

namespace troupe::test {

using nlohmann::json;

/// More than a page of an answer has.
constexpr int many = 600;

inline std::string text_of(const std::filesystem::path& path) {
  std::ifstream file(path);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

/// A user's home in which clusters run and `troupe` looks.
class State : public testing::Test {
 protected:
  std::string home() const { return folder_.path().string(); }
  std::filesystem::path clusters() const { return folder_.path() / "troupe" / "clusters"; }

  /// A process as it is at a terminal: ChildProcess ignores these signals for its children.
  static std::vector<std::string> with_signals(std::vector<std::string> words) {
    words.insert(words.begin(), {"env", "--default-signal=TERM,INT"});
    return words;
  }
  ChildProcess start(const std::vector<std::string>& words, const std::string& program,
                     const std::string& output) const {
    auto process = ChildProcess::start({.arguments = words,
                                        .output_path = output,
                                        .program = program,
                                        .environment = {"XDG_STATE_HOME=" + home()}});
    if (!process.ok()) throw std::runtime_error(process.error().message);
    return *std::move(process);
  }

  /// A program with a cluster; it has said that it is ready.
  ChildProcess start_program(const std::string& name, const std::string& manner = "handles") {
    const std::string output = home() + "/" + name + ".out";
    const std::string own = "/proc/" + std::to_string(::getpid()) + "/exe";
    auto process = start(with_signals({own, "--cluster", name, home() + "/logs-" + name, manner}),
                         "env", output);
    wait_for_text(output, "ready");
    return process;
  }

  static void wait_for_text(const std::string& file, const std::string& text) {
    const auto until = std::chrono::steady_clock::now() + limit;
    while (text_of(file).find(text) == std::string::npos) {
      if (std::chrono::steady_clock::now() > until) {
        throw std::runtime_error(fmt::format("{} has no '{}': {}", file, text, text_of(file)));
      }
      std::this_thread::sleep_for(10ms);
    }
  }

  struct Said {
    int code = -1;
    std::string text;
  };
  Said troupe(std::vector<std::string> words) {
    const std::string output = home() + "/said" + std::to_string(++said_);
    words.insert(words.begin(), "troupe");
    auto process = start(words, TROUPE_TOOL, output);
    const auto status = process.wait(limit);
    return {status && !status->signalled ? status->code : -1, text_of(output)};
  }
  std::size_t files() const {
    return static_cast<std::size_t>(
        std::distance(std::filesystem::directory_iterator(clusters()), {}));
  }

 private:
  const tests::TemporaryFolder folder_;
  int said_ = 0;
};

}  // namespace troupe::test
