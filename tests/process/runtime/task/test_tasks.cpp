#include "tests/process/runtime/task/test_tasks.hpp"

#include <csignal>
#include <fstream>
#include <numeric>
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
Floats make_floats(const std::string& file, int count, float value) {
  std::ofstream(file, std::ios::app) << ::getpid() << std::endl;
  return Floats(static_cast<std::size_t>(count), value);
}
Floats make_slowly(const std::string& file, int ms, int count) {
  sleep_for_ms(ms);
  return make_floats(file, count, 1.0F);
}
Result<Floats> doubled(ActorContext& context, const std::string& file,
                       const ObjectRef<Floats>& floats) {
  std::ofstream(file, std::ios::app) << ::getpid() << std::endl;
  TROUPE_TRY(const auto view, context.get(floats, limit));
  Floats all(view->begin(), view->end());
  for (float& one : all) one *= 2;
  return all;
}
Result<double> sum_of(ActorContext& context, const ObjectRef<Floats>& floats) {
  TROUPE_TRY(const auto view, context.get(floats, limit));
  return std::accumulate(view->begin(), view->end(), 0.0);
}
Result<std::vector<ObjectRef<Floats>>> put_parts(ActorContext& context, int parts, int count) {
  std::vector<ObjectRef<Floats>> refs;
  for (int i = 0; i < parts; ++i) {
    TROUPE_TRY(auto ref, context.put(Floats(static_cast<std::size_t>(count), 1.0F)));
    refs.push_back(std::move(ref));
  }
  return refs;
}
void run_until_cancelled(ActorContext& context, const std::string& file) {
  std::ofstream(file, std::ios::app) << "begun" << std::endl;
  Deadline deadline(limit);
  while (!context.is_cancelled() && !deadline.is_over()) std::this_thread::sleep_for(1ms);
  if (context.is_cancelled()) std::ofstream(file, std::ios::app) << "cancelled" << std::endl;
}
int sum_until_cancelled(ActorContext& context, const std::string& file) {
  run_until_cancelled(context, file);
  return 1;
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

std::int64_t Submitter::remaining_ms() {
  if (context_.deadline() == no_deadline) return -1;
  const auto left = context_.deadline() - std::chrono::steady_clock::now();
  return std::chrono::duration_cast<std::chrono::milliseconds>(left).count();
}

Result<std::int64_t> remaining_ms_of_call(const ActorHandle<Submitter>& actor) {
  return actor.call<&Submitter::remaining_ms>().get(limit);
}

Result<std::string> Submitter::cancel_a_task(const std::string& file) {
  auto running = context_.submit<&run_until_cancelled>({}, file);
  if (!comes_true([&] { return !lines_of(file).empty(); })) return std::string("has not begun");
  running.cancel();
  const auto ended = running.get(limit);
  return std::string(ended.ok() ? "ok" : to_string(ended.error().code));
}

}  // namespace troupe::test
