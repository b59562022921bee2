// The expressions of the interpreter; its statements are in interpreter.cpp.
#include "models/text/jinja/builtins.hpp"
#include "models/text/jinja/failure.hpp"
#include "models/text/jinja/interpreter.hpp"
#include "models/text/jinja/nesting.hpp"
#include "models/text/jinja/operators.hpp"

namespace troupe::jinja {

Value Interpreter::evaluate(const Expression& expression) {
  const Nesting nesting(depth_);
  line_ = expression.line;
  charge(1);
  return std::visit([&](const auto& form) { return evaluate(form); }, expression.form);
}

Value Interpreter::evaluate(const Literal& literal) { return literal.value; }

Value Interpreter::evaluate(const Name& name) {
  if (const Value* found = scope_->find(name.name)) return *found;
  return Value::undefined(fmt::format("'{}' is undefined", name.name));
}

Value Interpreter::evaluate(const ListLiteral& list) {
  std::vector<Value> items;
  for (const auto& item : list.items) items.push_back(evaluate(*item));
  return list.is_tuple ? Value::tuple(std::move(items)) : Value::list(std::move(items));
}

Value Interpreter::evaluate(const DictLiteral& literal) {
  Dict dict;
  for (const auto& [key, value] : literal.entries) dict.set(evaluate(*key), evaluate(*value));
  return dict;
}

Value Interpreter::evaluate(const Unary& unary) {
  const Value value = evaluate(*unary.operand);
  if (unary.op == UnaryOperator::logical_not) return !value.is_true();
  return unary.op == UnaryOperator::negate ? negate(value) : negate(negate(value));
}

Value Interpreter::evaluate(const Binary& binary) {
  const Value left = evaluate(*binary.left), right = evaluate(*binary.right);
  Value result = apply(binary.op, left, right);
  if (result.text()) charge_text(result.text()->size());
  if (result.sequence()) charge(result.sequence()->items.size() / 8);
  return result;
}

Value Interpreter::evaluate(const Logical& logical) {
  Value left = evaluate(*logical.left);
  return left.is_true() == logical.is_and ? evaluate(*logical.right) : left;
}

Value Interpreter::evaluate(const Compare& compare) {
  Value left = evaluate(*compare.first);
  for (const auto& [comparison, operand] : compare.rest) {
    Value right = evaluate(*operand);
    if (left.text()) charge_text(left.text()->size());
    if (!jinja::compare(comparison, left, right)) return false;
    left = std::move(right);
  }
  return true;
}

Value Interpreter::evaluate(const Conditional& conditional) {
  if (evaluate(*conditional.condition).is_true()) return evaluate(*conditional.then);
  if (conditional.otherwise) return evaluate(*conditional.otherwise);
  return Value::undefined("the condition is false and there is no 'else'");
}

Value Interpreter::evaluate(const Attribute& attribute) {
  return this->attribute(evaluate(*attribute.object), attribute.name);
}

Value Interpreter::evaluate(const Subscript& subscript) {
  const Value object = evaluate(*subscript.object);
  return this->subscript(object, evaluate(*subscript.index));
}

Value Interpreter::evaluate(const Slice& slice) {
  const Value object = evaluate(*slice.object);
  const auto bound = [&](const ExpressionPtr& part) { return part ? evaluate(*part) : Value(); };
  const Value start = bound(slice.start), stop = bound(slice.stop), step = bound(slice.step);
  if (object.text()) charge_text(object.text()->size());
  if (object.sequence()) charge(object.sequence()->items.size() / 8);
  return jinja::slice(object, start, stop, step);
}

Value Interpreter::evaluate(const Call& call) {
  const Value callee = evaluate(*call.callee);
  const int line = line_;
  const Arguments arguments = evaluate(call.arguments);
  line_ = line;
  return this->call(callee, arguments);
}

Value Interpreter::evaluate(const Filter& filter) {
  const Value operand = evaluate(*filter.operand);
  const int line = line_;
  const Arguments arguments = evaluate(filter.arguments);
  line_ = line;
  if (operand.text()) charge_text(operand.text()->size());
  Value result = apply_filter(*this, filter.name, operand, arguments);
  if (result.text()) charge_text(result.text()->size());
  return result;
}

Value Interpreter::evaluate(const Test& test) {
  const Value operand = evaluate(*test.operand);
  return apply_test(*this, test.name, operand, evaluate(test.arguments)) != test.is_negated;
}

Arguments Interpreter::evaluate(const ArgumentList& list) {
  Arguments arguments;
  for (const auto& argument : list.positional) arguments.positional.push_back(evaluate(*argument));
  for (const auto& [name, argument] : list.named)
    arguments.named.emplace_back(name, evaluate(*argument));
  return arguments;
}

}  // namespace troupe::jinja
