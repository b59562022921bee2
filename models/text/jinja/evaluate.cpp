// The expressions of the interpreter; its statements are in interpreter.cpp.
#include "models/text/jinja/builtins.hpp"
#include "models/text/jinja/failure.hpp"
#include "models/text/jinja/format.hpp"
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
  for (const Scope* scope = scope_.get(); scope != nullptr; scope = scope->parent.get())
    charge(scope->values.size() / 64);
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
  if (binary.op == BinaryOperator::modulo && left.text()) return format_printf(*this, left, right);
  Value result = apply(binary.op, left, right);
  charge_made(result);
  return result;
}

Value Interpreter::evaluate(const Concatenation& concatenation) {
  std::string out;
  for (const auto& part : concatenation.parts) append(text_of(evaluate(*part)), out);
  charge_memory(out.size());
  return out;
}

Value Interpreter::evaluate(const Logical& logical) {
  Value left = evaluate(*logical.left);
  return left.is_true() == logical.is_and ? evaluate(*logical.right) : left;
}

Value Interpreter::evaluate(const Compare& compare) {
  Value left = evaluate(*compare.first);
  for (const auto& [comparison, operand] : compare.rest) {
    Value right = evaluate(*operand);
    charge_reading(left);
    charge_reading(right);
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
  if (object.text()) charge_walk(object);
  Value result = jinja::slice(object, start, stop, step);
  charge_made(result);
  return result;
}

Value Interpreter::evaluate_call(const Call& call, const Value* caller) {
  const Value callee = evaluate(*call.callee);
  const int line = line_;
  Arguments arguments = evaluate(call.arguments);
  if (caller) arguments.named.emplace_back("caller", *caller);
  line_ = line;
  Value result = this->call(callee, arguments);
  charge_made(result);
  return result;
}

Value Interpreter::evaluate(const Filter& filter) {
  const Value operand = filter.operand ? evaluate(*filter.operand) : block_text_.value();
  const int line = line_;
  const Arguments arguments = evaluate(filter.arguments);
  line_ = line;
  if (operand.text()) charge_text(operand.text()->size());
  Value result = apply_filter(*this, filter.name, operand, arguments);
  charge_made(result);
  return result;
}

Value Interpreter::evaluate(const Test& test) {
  const Value operand = evaluate(*test.operand);
  return apply_test(*this, test.name, operand, evaluate(test.arguments)) != test.is_negated;
}

Arguments Interpreter::evaluate(const ArgumentList& list) {
  Arguments arguments;
  for (const auto& argument : list.positional) arguments.positional.push_back(evaluate(*argument));
  if (list.spread)
    for (Value& item : items_of(evaluate(*list.spread)))
      arguments.positional.push_back(std::move(item));
  for (const auto& [name, argument] : list.named)
    arguments.named.emplace_back(name, evaluate(*argument));
  if (!list.named_spread) return arguments;
  const Value more = evaluate(*list.named_spread);
  if (!more.dict()) throw invalid("** needs a dict, not a {}", more.type_name());
  charge_items(more.dict()->entries.size());
  for (const auto& [name, value] : more.dict()->entries) {
    if (!name.text()) throw invalid("** needs strings as keys, not a {}", name.type_name());
    if (arguments.find_named(*name.text()))
      throw invalid("the argument '{}' is given twice", *name.text());
    arguments.named.emplace_back(*name.text(), value);
  }
  return arguments;
}

void Interpreter::charge_made(const Value& value) {
  if (value.text()) {
    charge_text(value.text()->size());
    charge_memory(value.text()->size());
  } else {
    charge_items(value.count());
  }
}

}  // namespace troupe::jinja
