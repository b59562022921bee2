#include <cstdio>
#include <string>
#include <vector>

#include "runtime/troupe/arguments.hpp"
#include "runtime/troupe/run_state_command.hpp"

namespace troupe {
namespace {

constexpr int refused = 2;

int refuse(const Error& error) {
  std::fprintf(stderr, "troupe: %s\n", error.message.c_str());
  return refused;
}

int run(const std::vector<std::string>& arguments) {
  const auto parsed = parse_troupe_arguments(arguments);
  if (!parsed.ok()) return refuse(parsed.error());
  if (const auto* help = std::get_if<std::string>(&*parsed)) {
    std::fputs(help->c_str(), stdout);
    return 0;
  }
  const auto code = run_state_command(std::get<StateCommand>(*parsed));
  return code.ok() ? *code : refuse(code.error());
}

}  // namespace
}  // namespace troupe

int main(int argc, char** argv) { return troupe::run({argv + std::min(argc, 1), argv + argc}); }
