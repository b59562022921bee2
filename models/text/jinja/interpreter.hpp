#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "models/text/jinja/syntax.hpp"
#include "models/text/jinja/value.hpp"

namespace troupe::jinja {

/// Names and their values; what is not here is looked up in `parent`.
struct Scope {
  std::shared_ptr<Scope> parent;
  std::vector<std::pair<std::string, Value>> values;

  const Value* find(std::string_view name) const;
  void set(std::string_view name, Value value);
};

/// Runs one template once. Work, nesting and the size of texts are bounded, so that no template and
/// no message can hang or crash the process. Throws Failure; `line` then says where.
class Interpreter {
 public:
  explicit Interpreter(std::vector<std::pair<std::string, Value>> globals);
  ~Interpreter();
  Interpreter(const Interpreter&) = delete;
  Interpreter& operator=(const Interpreter&) = delete;

  /// The text that `block` writes.
  std::string run(const Block& block);

  /// The line of the template that is being run.
  int line() const { return line_; }

  // For built-in filters, tests, methods and functions:

  /// Accounts for `units` of work; an evaluation is one. Throws if the template has had its share.
  void charge(std::size_t units);
  void charge_text(std::size_t bytes) { charge(bytes / 64); }
  Value call(const Value& function, const Arguments& arguments);
  /// `object.name` and `object[key]`; undefined if there is none.
  Value attribute(const Value& object, std::string_view name);
  Value subscript(const Value& object, const Value& key);
  /// A namespace that lives at least as long as this interpreter keeps its fields.
  std::shared_ptr<Namespace> make_namespace(std::string type_name);

 private:
  enum class Flow { onward, leave_loop, next_iteration };

  Flow execute(const Block& block, std::string& out);
  Flow execute(const OutputText& text, std::string& out);
  Flow execute(const OutputValue& output, std::string& out);
  Flow execute(const std::unique_ptr<const Set>& set, std::string& out);
  Flow execute(const std::unique_ptr<const If>& branches, std::string& out);
  Flow execute(const std::unique_ptr<const For>& loop, std::string& out);
  Flow execute(const std::shared_ptr<const Macro>& macro, std::string& out);
  Flow execute(const Group& group, std::string& out);
  Flow execute(const Jump& jump, std::string& out);
  void assign(const Target& target, Value value);
  void append(std::string_view text, std::string& out);
  Value call_macro(const Macro& macro, const std::shared_ptr<Scope>& defined_in,
                   const Arguments& arguments);
  std::vector<Value> loop_items(const For& loop);

  Value evaluate(const Expression& expression);
  Value evaluate(const Literal& literal);
  Value evaluate(const Name& name);
  Value evaluate(const ListLiteral& list);
  Value evaluate(const DictLiteral& dict);
  Value evaluate(const Unary& unary);
  Value evaluate(const Binary& binary);
  Value evaluate(const Logical& logical);
  Value evaluate(const Compare& compare);
  Value evaluate(const Conditional& conditional);
  Value evaluate(const Attribute& attribute);
  Value evaluate(const Subscript& subscript);
  Value evaluate(const Slice& slice);
  Value evaluate(const Call& call);
  Value evaluate(const Filter& filter);
  Value evaluate(const Test& test);
  Arguments evaluate(const ArgumentList& list);

  std::shared_ptr<Scope> scope_;
  // Macros and namespaces can refer to each other in circles, which are cut at the end.
  std::vector<std::shared_ptr<Scope>> captured_scopes_;
  std::vector<std::shared_ptr<Namespace>> namespaces_;
  std::size_t work_ = 0;
  int depth_ = 0;
  int line_ = 0;
};

}  // namespace troupe::jinja
