#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "models/text/jinja/failure.hpp"

namespace troupe::jinja {

class Interpreter;
class Value;
struct Loop;

/// The size of a value: a walk over all of it visits `weight` values, and pieces of text of 16
/// bytes, on `depth` levels. A value contained twice counts twice.
struct Extent {
  int depth = 1;
  std::size_t weight = 1;

  /// Adds a contained value. Throws beyond max_value_depth; the weight saturates at its maximum.
  void add(const Value& value);
};

struct Undefined {
  std::string why;  // "'x' is undefined"
};
struct None {};
using Text = std::shared_ptr<const std::string>;

/// Text that must not be escaped for HTML again (Markup of Python's markupsafe).
struct Markup {
  Text text;
};

/// A value that can be counted and iterated over repeatedly.
struct Sequence {
  enum class Kind {
    list,
    tuple,
    group,  ///< a tuple (grouper, list) with its items as attributes
    range,
    dict_keys,
    dict_values,
    dict_items
  };

  std::vector<Value> items;
  Kind kind = Kind::list;
  std::string shown;  ///< how a range is printed
  Extent extent;

  bool is_list() const { return kind == Kind::list; }
  bool is_tuple() const { return kind == Kind::tuple || kind == Kind::group; }
  bool is_view() const { return kind >= Kind::dict_keys; }
};

/// A value that can be iterated over once: the result of map, select and the like, or of reverse.
/// Python computes the items on demand, so a failure appears only then.
struct Iterator {
  std::vector<Value> items;
  std::size_t next = 0;
  Extent extent;
  std::optional<Failure> failure = {};  ///< thrown when more than the items is taken

  /// Returns the next item; at the end null, or throws `failure`.
  const Value* take();
};

/// Keys in insertion order; found by a linear search.
struct Dict {
  std::vector<std::pair<Value, Value>> entries;
  Extent extent;  ///< of the Value that holds it

  const Value* find(const Value& key) const;
  const Value* find(std::string_view key) const;
  /// Throws if `key` has a type that cannot be a key.
  void set(const Value& key, Value value);
};

/// namespace() of a template, the only value that it can change.
struct Namespace {
  Dict fields;
};

struct Arguments {
  std::vector<Value> positional;
  std::vector<std::pair<std::string, Value>> named;

  const Value* find_named(std::string_view name) const;
};

struct Function {
  std::string name;
  bool is_macro;
  int depth;  ///< of the values that it holds
  std::function<Value(Interpreter&, const Arguments&)> call;
};

/// A value of the template language with Python's behaviour: lists and dicts are shared and
/// immutable. Values are nested at most max_value_depth deep, so that walks over them (and their
/// destruction) need little stack. Functions throw Failure on values they do not support.
class Value {
 public:
  using Form = std::variant<Undefined, None, bool, std::int64_t, double, Text, Markup,
                            std::shared_ptr<const Sequence>, std::shared_ptr<Iterator>,
                            std::shared_ptr<const Dict>, std::shared_ptr<Namespace>,
                            std::shared_ptr<const Function>, std::shared_ptr<Loop>>;

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
  static Value markup(std::string text);
  static Value list(std::vector<Value> items);
  static Value tuple(std::vector<Value> items);
  static Value sequence(Sequence::Kind kind, std::vector<Value> items, std::string shown = "");
  static Value iterator(std::vector<Value> items, std::optional<Failure> failure = {});
  /// `kept`: a value that `call` holds.
  static Value function(std::string name, decltype(Function::call) call, const Value& kept = {});

  /// Converts `json`, keeping the order of keys.
  static Value from_json(const nlohmann::ordered_json& json);

  template <class T>
  const T* get_if() const {
    return std::get_if<T>(&form_);
  }
  const std::string* text() const;   // null: not a string
  const Sequence* sequence() const;  // null: not a sequence
  const Dict* dict() const;          // null: not a mapping
  Iterator* iterator() const;        // null: not an iterator
  Namespace* name_space() const;     // null: not a namespace
  Loop* loop() const;                // null: not `loop`
  const Function* function() const;  // null: not a function
  bool is_undefined() const { return get_if<Undefined>() != nullptr; }
  bool is_none() const { return get_if<None>() != nullptr; }
  bool is_markup() const { return get_if<Markup>() != nullptr; }
  bool is_number() const;        // bool, int or float
  bool is_integer() const;       // bool or int
  std::int64_t integer() const;  // of a bool or int
  double number() const;         // of a bool, int or float
  Extent extent() const;

  bool is_true() const;
  std::string_view type_name() const;  // Python's: "str", "NoneType", ...

  /// Python's str() and repr().
  std::string to_string() const;
  std::string repr(int depth = 0) const;

  bool is_iterable() const;
  /// Returns the values of a loop over this one: items, keys, or characters. An iterator is then
  /// exhausted.
  std::vector<Value> iterate() const;
  /// The number of values that iterate() returns.
  std::size_t count() const;

  bool equals(const Value& other) const;
  bool less_than(const Value& other) const;
  /// `needle in this`.
  bool contains(const Value& needle) const;
  /// Throws unless this can be the key of a dict.
  void require_hashable() const;

 private:
  Form form_;
};

inline constexpr int max_value_depth = 200;

/// Throws if `depth` exceeds max_value_depth.
void check_value_depth(int depth);

/// The maximum size of a string in a template.
inline constexpr std::size_t max_text_bytes = std::size_t{64} << 20;

/// Throws if `bytes` exceeds max_text_bytes.
void check_text_size(std::size_t bytes);

/// The maximum length of a list made by a template.
inline constexpr std::size_t max_items = 1'000'000;

/// Throws if `count` exceeds max_items.
void check_item_count(std::size_t count);

}  // namespace troupe::jinja
