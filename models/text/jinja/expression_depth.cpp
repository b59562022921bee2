#include "models/text/jinja/expression_depth.hpp"

#include <algorithm>

namespace troupe::jinja {
namespace {

/// Finds the depth of the deepest expression in a node.
struct DepthBelow {
  int depth = 0;

  void add(const ExpressionPtr& child) {
    if (child) depth = std::max(depth, child->depth);
  }
  void add(const std::vector<ExpressionPtr>& children) {
    for (const auto& child : children) add(child);
  }
  void add(const ArgumentList& list) {
    add(list.positional);
    for (const auto& [name, value] : list.named) add(value);
    add(list.spread);
    add(list.named_spread);
  }
  void operator()(const Literal&) {}
  void operator()(const Name&) {}
  void operator()(const ListLiteral& list) { add(list.items); }
  void operator()(const DictLiteral& dict) {
    for (const auto& [key, value] : dict.entries) {
      add(key);
      add(value);
    }
  }
  void operator()(const Unary& unary) { add(unary.operand); }
  void operator()(const Binary& binary) {
    add(binary.left);
    add(binary.right);
  }
  void operator()(const Concatenation& concatenation) { add(concatenation.parts); }
  void operator()(const Logical& logical) {
    add(logical.left);
    add(logical.right);
  }
  void operator()(const Compare& compare) {
    add(compare.first);
    for (const auto& [comparison, operand] : compare.rest) add(operand);
  }
  void operator()(const Conditional& conditional) {
    add(conditional.condition);
    add(conditional.then);
    add(conditional.otherwise);
  }
  void operator()(const Attribute& attribute) { add(attribute.object); }
  void operator()(const Subscript& subscript) {
    add(subscript.object);
    add(subscript.index);
  }
  void operator()(const Slice& slice) {
    for (const auto* part : {&slice.object, &slice.start, &slice.stop, &slice.step}) add(*part);
  }
  void operator()(const Call& call) {
    add(call.callee);
    add(call.arguments);
  }
  void operator()(const Filter& filter) {
    add(filter.operand);
    add(filter.arguments);
  }
  void operator()(const Test& test) {
    add(test.operand);
    add(test.arguments);
  }
};

}  // namespace

int depth_of(const Expression::Form& form) {
  DepthBelow below;
  std::visit([&](const auto& node) { below(node); }, form);
  return below.depth + 1;
}

}  // namespace troupe::jinja
