#pragma once

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "models/text/jinja/value.hpp"

namespace troupe::jinja {

// The tree that a template is parsed into. Every node knows its line.

struct Expression;
using ExpressionPtr = std::unique_ptr<const Expression>;

struct Literal {
  Value value;
};
struct Name {
  std::string name;
};
struct ListLiteral {
  std::vector<ExpressionPtr> items;
  bool is_tuple;
};
struct DictLiteral {
  std::vector<std::pair<ExpressionPtr, ExpressionPtr>> entries;
};
enum class UnaryOperator { negate, plus, logical_not };
struct Unary {
  UnaryOperator op;
  ExpressionPtr operand;
};
enum class BinaryOperator {
  add,
  subtract,
  multiply,
  divide,
  floor_divide,
  modulo,
  power,
  concatenate
};
struct Binary {
  BinaryOperator op;
  ExpressionPtr left, right;
};
struct Logical {
  bool is_and;
  ExpressionPtr left, right;
};
enum class Comparison { equal, unequal, less, less_equal, greater, greater_equal, in, not_in };
struct Compare {
  ExpressionPtr first;
  std::vector<std::pair<Comparison, ExpressionPtr>> rest;  // a < b < c means a < b and b < c
};
struct Conditional {
  ExpressionPtr condition, then, otherwise;  // otherwise: null if absent
};
struct Attribute {
  ExpressionPtr object;
  std::string name;
};
struct Subscript {
  ExpressionPtr object, index;
};
struct Slice {
  ExpressionPtr object, start, stop, step;  // each of the last three may be null
};
struct ArgumentList {
  std::vector<ExpressionPtr> positional;
  std::vector<std::pair<std::string, ExpressionPtr>> named;
};
struct Call {
  ExpressionPtr callee;
  ArgumentList arguments;
};
struct Filter {
  ExpressionPtr operand;
  std::string name;
  ArgumentList arguments;
};
struct Test {
  ExpressionPtr operand;
  std::string name;
  ArgumentList arguments;
  bool is_negated;
};

struct Expression {
  int line;
  std::variant<Literal, Name, ListLiteral, DictLiteral, Unary, Binary, Logical, Compare,
               Conditional, Attribute, Subscript, Slice, Call, Filter, Test>
      form;
};

struct Statement;
using Block = std::vector<Statement>;

/// What `set` and `for` assign to: one name, several for the items of a value, or an attribute of a
/// namespace.
struct Target {
  std::vector<std::string> names;
  bool unpacks = false;
  std::string attribute;  // of namespace names[0], if not empty
};

struct OutputText {
  std::string text;
};
struct OutputValue {
  ExpressionPtr value;
};
struct Set {
  Target target;
  ExpressionPtr value;  // null: the output of `body`
  Block body;
};
struct If {
  std::vector<std::pair<ExpressionPtr, Block>> branches;
  Block otherwise;
};
struct For {
  Target target;
  ExpressionPtr iterable;
  ExpressionPtr condition;  // null if absent
  Block body, otherwise;
};
struct Macro {
  std::string name;
  std::vector<std::pair<std::string, ExpressionPtr>> parameters;  // with their defaults or null
  Block body;
};
struct Group {
  Block body;  // of a tag that changes nothing, e.g. `generation`
};
enum class Jump { leave_loop, next_iteration };

struct Statement {
  using Form =
      std::variant<OutputText, OutputValue, std::unique_ptr<const Set>, std::unique_ptr<const If>,
                   std::unique_ptr<const For>, std::shared_ptr<const Macro>, Group, Jump>;
  int line;
  Form form;
};

}  // namespace troupe::jinja
