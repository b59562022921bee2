#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include <nlohmann/json_fwd.hpp>

namespace troupe::jinja {

class Interpreter;
class Value;

struct Undefined {
  std::string why;  // "'x' is undefined"
};
struct None {};
using Text = std::shared_ptr<const std::string>;

struct Sequence {
  std::vector<Value> items;
  bool is_tuple = false;
};

/// Keys in the order in which they were entered; found by a linear search.
struct Dict {
  std::vector<std::pair<Value, Value>> entries;

  const Value* find(const Value& key) const;
  const Value* find(std::string_view key) const;
  void set(const Value& key, Value value);
};

/// namespace() of a template, the only value that can change; also `loop`.
struct Namespace {
  std::string type_name;
  Dict fields;
};

struct Arguments {
  std::vector<Value> positional;
  std::vector<std::pair<std::string, Value>> named;

  /// The argument at `position` or called `name`; null if it was not given.
  const Value* find(std::size_t position, std::string_view name) const;
};

struct Function {
  std::string name;
  std::function<Value(Interpreter&, const Arguments&)> call;
};

/// A value of the template language with Python's behaviour: lists and dicts are shared and never
/// change. Functions that meet values they cannot work on throw Failure.
class Value {
 public:
  using Form = std::variant<Undefined, None, bool, std::int64_t, double, Text,
                            std::shared_ptr<const Sequence>, std::shared_ptr<const Dict>,
                            std::shared_ptr<Namespace>, std::shared_ptr<const Function>>;

  Value() : form_(None{}) {}
  Value(Form form) : form_(std::move(form)) {}                // NOLINT: implicit
  Value(bool value) : form_(value) {}                         // NOLINT: implicit
  Value(std::int64_t value) : form_(value) {}                 // NOLINT: implicit
  Value(double value) : form_(value) {}                       // NOLINT: implicit
  Value(std::string text);                                    // NOLINT: implicit
  Value(std::string_view text) : Value(std::string(text)) {}  // NOLINT: implicit
  Value(const char* text) : Value(std::string(text)) {}       // NOLINT: implicit
  Value(Dict dict);                                           // NOLINT: implicit
  static Value undefined(std::string why) { return Form(Undefined{std::move(why)}); }
  static Value list(std::vector<Value> items);
  static Value tuple(std::vector<Value> items);
  static Value function(std::string name, decltype(Function::call) call);

  /// The value of `json`, keys in their order.
  static Value from_json(const nlohmann::ordered_json& json);

  template <class T>
  const T* get_if() const {
    return std::get_if<T>(&form_);
  }
  const std::string* text() const;   // null: not a string
  const Sequence* sequence() const;  // null: neither list nor tuple
  const Dict* dict() const;          // null: not a mapping
  Namespace* name_space() const;     // null: not a namespace
  bool is_undefined() const { return get_if<Undefined>() != nullptr; }
  bool is_none() const { return get_if<None>() != nullptr; }
  bool is_number() const;        // bool, int or float
  bool is_integer() const;       // bool or int
  std::int64_t integer() const;  // of a bool or int
  double number() const;         // of a bool, int or float

  bool is_true() const;
  std::string_view type_name() const;  // Python's: "str", "NoneType", ...

  /// str(), repr() and json.dumps(ensure_ascii=False) of Python. `indent` < 0: on one line.
  std::string to_string() const;
  std::string repr(int depth = 0) const;
  std::string to_json(int indent = -1, bool sort_keys = false) const;

  /// The values that a loop over this one meets: items, keys, or characters.
  std::vector<Value> iterate() const;

  bool equals(const Value& other) const;
  bool less_than(const Value& other) const;
  /// `needle in this`.
  bool contains(const Value& needle) const;

 private:
  Form form_;
};

/// No string of a template may become longer.
inline constexpr std::size_t longest_text_bytes = std::size_t{64} << 20;

/// Throws if `bytes` is more than that.
void check_text_size(std::size_t bytes);

}  // namespace troupe::jinja
