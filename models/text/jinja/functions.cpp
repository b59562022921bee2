#include <ctime>

#include "models/text/jinja/builtins.hpp"
#include "models/text/jinja/failure.hpp"

namespace troupe::jinja {
namespace {

constexpr std::int64_t longest_range = 100'000;  // as in Jinja's sandbox

Value make_namespace(Interpreter& interpreter, const Arguments& arguments) {
  const auto name_space = interpreter.make_namespace("namespace");
  if (!arguments.positional.empty() && arguments.positional[0].dict())
    name_space->fields = *arguments.positional[0].dict();
  for (const auto& [name, value] : arguments.named) name_space->fields.set(name, value);
  return Value::Form(name_space);
}

Value range(Interpreter& interpreter, const Arguments& arguments) {
  const auto& given = arguments.positional;
  if (given.empty() || given.size() > 3) throw invalid("range() takes one to three integers");
  const std::int64_t start = given.size() > 1 ? given[0].integer() : 0;
  const std::int64_t stop = given[given.size() > 1 ? 1 : 0].integer();
  const std::int64_t step = given.size() > 2 ? given[2].integer() : 1;
  if (step == 0) throw invalid("range() with step 0");
  std::vector<Value> items;
  bool has_next = true;
  for (std::int64_t i = start; has_next && (step > 0 ? i < stop : i > stop);
       has_next = !__builtin_add_overflow(i, step, &i)) {
    items.emplace_back(i);
    if (static_cast<std::int64_t>(items.size()) > longest_range)
      throw invalid("range() of more than {} integers", longest_range);
  }
  interpreter.charge(items.size());
  return Value::list(std::move(items));
}

Value dict(Interpreter&, const Arguments& arguments) {
  Dict result;
  if (!arguments.positional.empty() && arguments.positional[0].dict())
    result = *arguments.positional[0].dict();
  for (const auto& [name, value] : arguments.named) result.set(name, value);
  return result;
}

Value raise_exception(Interpreter&, const Arguments& arguments) {
  const Value* message = arguments.find(0, "message");
  throw invalid("{}", message ? message->to_string() : "raise_exception()");
}

Value strftime_now(Interpreter&, const Arguments& arguments) {
  const Value* format = arguments.find(0, "format");
  if (format == nullptr || !format->text()) throw invalid("strftime_now() needs a format");
  const std::time_t now = std::time(nullptr);
  std::tm local{};
  localtime_r(&now, &local);
  // A character before the format tells an empty result from one that does not fit.
  char buffer[512];
  const std::size_t size =
      std::strftime(buffer, sizeof(buffer), ("x" + *format->text()).c_str(), &local);
  if (size == 0) throw invalid("strftime_now() with too long a format");
  return std::string(buffer + 1, size - 1);
}

}  // namespace

std::vector<std::pair<std::string, Value>> builtin_functions() {
  return {{"namespace", Value::function("namespace", make_namespace)},
          {"range", Value::function("range", range)},
          {"dict", Value::function("dict", dict)},
          {"raise_exception", Value::function("raise_exception", raise_exception)},
          {"strftime_now", Value::function("strftime_now", strftime_now)}};
}

}  // namespace troupe::jinja
