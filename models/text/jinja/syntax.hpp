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
enum class BinaryOperator { add, subtract, multiply, divide, floor_divide, modulo, power };
struct Binary {
  BinaryOperator op;
  ExpressionPtr left, right;
};
struct Concatenation {
  std::vector<ExpressionPtr> parts;  // a ~ b ~ c
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
  ExpressionPtr spread, named_spread;  // *spread and **named_spread; null if absent
};
struct Call {
  ExpressionPtr callee;
  ArgumentList arguments;
};
struct Filter {
  ExpressionPtr operand;  // null: the text of a block
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
  using Form =
      std::variant<Literal, Name, ListLiteral, DictLiteral, Unary, Binary, Concatenation, Logical,
                   Compare, Conditional, Attribute, Subscript, Slice, Call, Filter, Test>;
  int line;
  int depth;  // of the tree below; bounded by the parser, because walks over it recurse
  Form form;
};

struct Statement;
using Block = std::vector<Statement>;

/// The target of an assignment by `set`, `with` and `for`: a name, an attribute of the namespace
/// `name`, or, if `unpacks`, the targets for the items of a value.
struct Target {
  std::string name;
  std::string attribute;
  std::vector<Target> parts;
  bool unpacks = false;
};

struct OutputText {
  std::string text;
};
struct OutputValue {
  ExpressionPtr value;
};
struct Set {
  Target target;
  ExpressionPtr value;   // null: the output of `body`
  ExpressionPtr filter;  // for the output of `body`, or null
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
  bool is_recursive = false;
};
struct Macro {
  std::string name;
  std::vector<std::pair<std::string, ExpressionPtr>> parameters;  // with their defaults, or null
  Block body;
  // Names that the body mentions but does not define; the macro is then called with them.
  bool takes_caller = false, takes_varargs = false, takes_kwargs = false;
};
struct CallBlock {
  ExpressionPtr call;
  std::shared_ptr<const Macro> caller;
};
struct FilterBlock {
  ExpressionPtr filter;
  Block body;
};
struct With {
  std::vector<std::pair<Target, ExpressionPtr>> variables;
  Block body;  // also for `generation`, which has no variables
};
enum class Jump { leave_loop, next_iteration };

struct Statement {
  using Form = std::variant<OutputText, OutputValue, std::unique_ptr<const Set>,
                            std::unique_ptr<const If>, std::unique_ptr<const For>,
                            std::shared_ptr<const Macro>, CallBlock, FilterBlock, With, Jump>;
  int line;
  Form form;
};

}  // namespace troupe::jinja
