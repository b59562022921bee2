#include "tests/process/runtime/task/test_tasks.hpp"

#include <csignal>
#include <fstream>
#include <thread>

#include <unistd.h>

namespace troupe::test {

int add(int a, int b) { return a + b; }
int slow_add(int a, int b) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::microseconds(20);
  while (std::chrono::steady_clock::now() < end) {
  }
  return a + b;
}
int own_pid() { return ::getpid(); }
void sleep_for_ms(int ms) { std::this_thread::sleep_for(std::chrono::milliseconds(ms)); }
int throw_out_of_range(const std::string& text) { throw std::out_of_range(text); }
Result<int> divide(int a, int b) {
  if (b == 0) return fail(ErrorCode::invalid_argument, "division by zero");
  return a / b;
}
Result<int> fibonacci(ActorContext& context, int n) {
  if (n < 2) return n;
  auto a = context.submit<&fibonacci>({}, n - 1);
  auto b = context.submit<&fibonacci>({}, n - 2);
  TROUPE_TRY(const int first, a.get(limit));
  TROUPE_TRY(const int second, b.get(limit));
  return first + second;
}
std::string die_once(const std::string& file) {
  if (std::ifstream(file).good()) return "lives";
  std::ofstream(file) << "died" << std::flush;
  ::kill(::getpid(), SIGKILL);
  return "dies";
}
void die() { ::kill(::getpid(), SIGKILL); }
std::string visible_devices(ActorContext& context) {
  const char* set = std::getenv("CUDA_VISIBLE_DEVICES");
  return fmt::format("{} of {}", set == nullptr ? "not set" : set, context.device_ids().size());
}
std::string echo(const std::string& text) { return text; }

Result<int> Submitter::sum_of_tasks(int count) {
  std::vector<Future<int>> sums;
  for (int i = 0; i < count; ++i) sums.push_back(context_.submit<&add>({}, i, 1));
  int total = 0;
  for (auto& sum : sums) {
    TROUPE_TRY(const int one, sum.get(limit));
    total += one;
  }
  return total;
}

}  // namespace troupe::test
