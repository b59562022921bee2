#include "runtime/task/task_function.hpp"

#include <unordered_map>
#include <vector>

#include <fmt/ranges.h>

namespace troupe {
namespace {

struct Known {
  std::string name;
  RunTask run = nullptr;
};

/// Filled by initialisers of all files, in any order, before main.
struct Table {
  std::unordered_map<TaskFunctionId, Known> functions;
  std::vector<std::string> ambiguous;
};

Table& table() {
  static Table all;
  return all;
}

/// FNV-1a.
TaskFunctionId hash_of(std::string_view name, std::string_view type) {
  TaskFunctionId hash = 14695981039346656037ULL;
  for (const std::string_view part : {name, std::string_view("|"), type}) {
    for (const char letter : part) {
      hash = (hash ^ static_cast<unsigned char>(letter)) * 1099511628211ULL;
    }
  }
  return hash;
}

}  // namespace

TaskFunctionId TaskFunctions::add(std::string_view name, std::string_view type, RunTask run) {
  const TaskFunctionId id = hash_of(name, type);
  const auto [found, is_new] = table().functions.try_emplace(id, std::string(name), run);
  if (!is_new && found->second.run != run) table().ambiguous.emplace_back(name);
  return id;
}

Result<RunTask> TaskFunctions::find(TaskFunctionId id) {
  const auto found = table().functions.find(id);
  if (found != table().functions.end()) return found->second.run;
  return fail(ErrorCode::not_found, "this program has no task function number {:x}", id);
}

std::string_view TaskFunctions::name_of(TaskFunctionId id) {
  const auto found = table().functions.find(id);
  return found == table().functions.end() ? std::string_view() : found->second.name;
}

Result<void> TaskFunctions::check() {
  if (table().ambiguous.empty()) return {};
  return fail(ErrorCode::invalid_argument,
              "several task functions are named {}: give those of different files different "
              "names, as processes find them by name",
              fmt::join(table().ambiguous, ", "));
}

}  // namespace troupe
