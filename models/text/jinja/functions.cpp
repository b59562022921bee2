#include <ctime>
#include <utility>

#include <fmt/format.h>

#include "models/text/jinja/builtins.hpp"
#include "models/text/jinja/failure.hpp"
#include "models/text/jinja/parameters.hpp"

namespace troupe::jinja {
namespace {

constexpr std::int64_t longest_range = 100'000;  // as in Jinja's sandbox

/// The positional argument of dict() or namespace() merged with the named ones.
Dict dict_of(Interpreter& interpreter, const Arguments& arguments, std::string_view name) {
  Dict result;
  if (arguments.positional.size() > 1) throw invalid("{}() takes one argument", name);
  if (!arguments.positional.empty()) {
    const Value& from = arguments.positional[0];
    if (from.dict()) {
      interpreter.charge_items(from.count());
      result.entries = from.dict()->entries;
    } else {
      for (const Value& pair : interpreter.items_of(from)) {
        interpreter.charge(2 + result.entries.size() / 16);
        const std::vector<Value> parts = interpreter.items_of(pair);
        if (parts.size() != 2) throw invalid("{}() needs pairs of keys and values", name);
        result.set(parts[0], parts[1]);
      }
    }
  }
  for (const auto& [key, value] : arguments.named) {
    interpreter.charge(1 + result.entries.size() / 16);
    result.set(Value(key), value);
  }
  return result;
}

Value make_namespace(Interpreter& interpreter, const Arguments& arguments) {
  const auto name_space = interpreter.make_namespace();
  name_space->fields = dict_of(interpreter, arguments, "namespace");
  interpreter.charge_items(name_space->fields.entries.size());
  return Value::Form(name_space);
}

Value dict(Interpreter& interpreter, const Arguments& arguments) {
  return dict_of(interpreter, arguments, "dict");
}

Value range(Interpreter& interpreter, const Arguments& arguments) {
  const auto& given = arguments.positional;
  if (given.empty() || given.size() > 3 || !arguments.named.empty())
    throw invalid("range() takes one to three integers");
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
  std::string shown = step == 1 ? fmt::format("range({}, {})", start, stop)
                                : fmt::format("range({}, {}, {})", start, stop, step);
  return Value::sequence(Sequence::Kind::range, std::move(items), std::move(shown));
}

/// joiner(separator): returns nothing on its first call, then the separator.
Value joiner(Interpreter&, const Arguments& arguments) {
  const Bound bound("joiner", "sep=", arguments);
  const Value separator = bound[0] ? *bound[0] : Value(", ");
  return Value::function(
      "joiner",
      [separator, is_used = std::make_shared<bool>(false)](Interpreter&, const Arguments&) {
        return std::exchange(*is_used, true) ? separator : Value("");
      },
      separator);
}

Value raise_exception(Interpreter&, const Arguments& arguments) {
  const Bound bound("raise_exception", "message", arguments);
  throw invalid("{}", bound[0]->to_string());
}

/// Removes from `format` the fields that Python's datetime fills in itself: fractions of a second,
/// and a time zone, which datetime.now() does not have.
std::string without_python_fields(std::string_view format) {
  std::string out;
  for (std::size_t at = 0; at < format.size(); ++at) {
    const char next = format[at] == '%' && at + 1 < format.size() ? format[at + 1] : '\0';
    if (next == 'f') {
      out += "000000";
    } else if (next != 'z' && next != 'Z') {
      out += format[at];
      if (next != '\0') out += next;
    }
    if (next != '\0') ++at;
  }
  return out;
}

Value strftime_now(Interpreter& interpreter, const Arguments& arguments) {
  const Bound bound("strftime_now", "format", arguments);
  if (!bound[0]->text()) throw invalid("strftime_now() needs a format");
  const std::time_t now = interpreter.now();
  std::tm utc{};
  gmtime_r(&now, &utc);
  // A leading character distinguishes an empty result from one that does not fit.
  char buffer[512];
  const std::string format = fmt::format("x{}", without_python_fields(*bound[0]->text()));
  const std::size_t size = std::strftime(buffer, sizeof(buffer), format.c_str(), &utc);
  if (size == 0) throw invalid("strftime_now() with too long a format");
  return std::string(buffer + 1, size - 1);
}

}  // namespace

std::vector<std::pair<std::string, Value>> builtin_functions() {
  using Call = Value (*)(Interpreter&, const Arguments&);
  constexpr std::pair<const char*, Call> functions[] = {{"namespace", make_namespace},
                                                        {"range", range},
                                                        {"dict", dict},
                                                        {"joiner", joiner},
                                                        {"raise_exception", raise_exception},
                                                        {"strftime_now", strftime_now}};
  std::vector<std::pair<std::string, Value>> values;
  for (const auto& [name, call] : functions) values.emplace_back(name, Value::function(name, call));
  return values;
}

}  // namespace troupe::jinja
