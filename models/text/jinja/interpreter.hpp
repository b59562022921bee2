#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "models/text/jinja/syntax.hpp"
#include "models/text/jinja/value.hpp"

namespace troupe::jinja {

/// Names and their values; names not found here are looked up in `parent`.
struct Scope {
  std::shared_ptr<Scope> parent;
  std::vector<std::pair<std::string, Value>> values;

  const Value* find(std::string_view name) const;
  void set(std::string_view name, Value value);
};

/// Runs one template once. Work, memory, nesting and the size of texts are bounded, so that no
/// template and no message can hang or crash the process. Throws Failure; `line` then says where.
class Interpreter {
 public:
  /// `now`: the time that strftime_now returns, in seconds since 1970, UTC.
  Interpreter(std::vector<std::pair<std::string, Value>> globals, std::int64_t now);
  ~Interpreter();
  Interpreter(const Interpreter&) = delete;
  Interpreter& operator=(const Interpreter&) = delete;

  /// Runs `block` and returns its output.
  std::string run(const Block& block);

  /// The template line being run.
  int line() const { return line_; }

  // For built-in filters, tests, methods and functions:

  /// Charges `units` of work; an evaluation is one. Throws if the template exceeds its limit.
  void charge(std::size_t units);
  /// Charges memory that values take, whether or not it is freed again. Throws like charge().
  void charge_memory(std::size_t bytes);
  /// Charges reading or making a text of this many bytes.
  void charge_text(std::size_t bytes) { charge(bytes / 64); }
  /// Charges work on each character of a text of this many bytes, such as to change its case.
  void charge_characters(std::size_t bytes) { charge(1 + bytes / 8); }
  /// Charges a walk over all of `value`, e.g. to print or to compare it.
  void charge_walk(const Value& value) { charge(value.extent().weight); }
  /// Charges reading `value`: a text as such, and anything else as a walk.
  void charge_reading(const Value& value);
  /// Charges a list of `count` values before it is made.
  void charge_items(std::size_t count);

  /// Charges `value`, which was just made, without its contents.
  void charge_made(const Value& value);

  /// value.to_string() and value.iterate(), charged.
  std::string text_of(const Value& value);
  std::vector<Value> items_of(const Value& value);

  Value call(const Value& function, const Arguments& arguments);
  /// `object.name` and `object[key]`; undefined if there is none.
  Value attribute(const Value& object, std::string_view name);
  Value subscript(const Value& object, const Value& key);
  /// `object.name` ignoring its keys: Python's getattr().
  std::optional<Value> own_attribute(const Value& object, std::string_view name);
  std::shared_ptr<Namespace> make_namespace();
  std::int64_t now() const { return now_; }

 private:
  enum class Flow { onward, leave_loop, next_iteration };

  Flow execute(const Block& block, std::string& out);
  Flow execute(const OutputText& text, std::string& out);
  Flow execute(const OutputValue& output, std::string& out);
  Flow execute(const std::unique_ptr<const Set>& set, std::string& out);
  Flow execute(const std::unique_ptr<const If>& branches, std::string& out);
  Flow execute(const std::unique_ptr<const For>& loop, std::string& out);
  Flow execute(const std::shared_ptr<const Macro>& macro, std::string& out);
  Flow execute(const CallBlock& block, std::string& out);
  Flow execute(const FilterBlock& block, std::string& out);
  Flow execute(const With& with, std::string& out);
  Flow execute(const Jump& jump, std::string& out);
  /// Runs `block` in a scope of its own.
  Flow execute_inside(const Block& block, std::string& out);
  void assign(const Target& target, Value value);
  void append(std::string_view text, std::string& out);
  std::vector<Value> loop_items(const For& loop, const Value& iterable);
  Flow run_loop(const For& loop, const Value& iterable, int level, std::string& out);
  std::string call_loop(const Loop& loop, const Arguments& arguments);
  Value make_macro(std::shared_ptr<const Macro> macro);
  Value call_macro(const Macro& macro, const std::shared_ptr<Scope>& defined_in,
                   const Arguments& arguments);
  void bind_parameters(const Macro& macro, const Arguments& arguments);

  Value evaluate(const Expression& expression);
  Value evaluate(const Literal& literal);
  Value evaluate(const Name& name);
  Value evaluate(const ListLiteral& list);
  Value evaluate(const DictLiteral& dict);
  Value evaluate(const Unary& unary);
  Value evaluate(const Binary& binary);
  Value evaluate(const Concatenation& concatenation);
  Value evaluate(const Logical& logical);
  Value evaluate(const Compare& compare);
  Value evaluate(const Conditional& conditional);
  Value evaluate(const Attribute& attribute);
  Value evaluate(const Subscript& subscript);
  Value evaluate(const Slice& slice);
  Value evaluate(const Call& call) { return evaluate_call(call, nullptr); }
  Value evaluate_call(const Call& call, const Value* caller);
  Value evaluate(const Filter& filter);
  Value evaluate(const Test& test);
  Arguments evaluate(const ArgumentList& list);
  Value filtered(const ExpressionPtr& filter, std::string text);

  std::shared_ptr<Scope> scope_;
  // Macros and namespaces can form reference cycles, which are broken at the end.
  std::vector<std::shared_ptr<Scope>> captured_scopes_;
  std::vector<std::shared_ptr<Namespace>> namespaces_;
  std::optional<Value> block_text_;  // the operand of a block's innermost filter
  std::int64_t now_;
  std::size_t work_ = 0;
  std::size_t memory_ = 0;
  int depth_ = 0;
  int line_ = 0;
};

}  // namespace troupe::jinja
