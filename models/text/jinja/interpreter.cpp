#include "models/text/jinja/interpreter.hpp"

#include "models/text/jinja/builtins.hpp"
#include "models/text/jinja/failure.hpp"
#include "models/text/jinja/loop.hpp"
#include "models/text/jinja/nesting.hpp"
#include "models/text/jinja/operators.hpp"
#include "models/text/unicode/utf8.hpp"

namespace troupe::jinja {
namespace {

// A template of a large model with tools and hundreds of messages takes about 10^5 evaluations.
constexpr std::size_t max_work = 4'000'000;
constexpr std::size_t max_memory_bytes = std::size_t{384} << 20;
constexpr std::size_t bytes_of_item = 64;
constexpr std::size_t bytes_of_character = 128;  // cost of one character as a string of its own in
                                                 // a list
constexpr std::size_t bytes_of_scope = 256;

}  // namespace

const Value* Scope::find(std::string_view name) const {
  for (const Scope* scope = this; scope != nullptr; scope = scope->parent.get())
    for (const auto& [key, value] : scope->values)
      if (key == name) return &value;
  return nullptr;
}

void Scope::set(std::string_view name, Value value) {
  for (auto& [key, old] : values) {
    if (key == name) {
      old = std::move(value);
      return;
    }
  }
  values.emplace_back(name, std::move(value));
}

Interpreter::Interpreter(std::vector<std::pair<std::string, Value>> globals, std::int64_t now)
    : scope_(std::make_shared<Scope>()), now_(now) {
  for (auto& [name, value] : globals) scope_->set(name, std::move(value));
}

Interpreter::~Interpreter() {
  for (const auto& scope : captured_scopes_) scope->values.clear();
  for (const auto& name_space : namespaces_) name_space->fields.entries.clear();
}

std::string Interpreter::run(const Block& block) {
  std::string out;
  if (execute(block, out) != Flow::onward) throw invalid("'break' or 'continue' outside a loop");
  return out;
}

void Interpreter::charge(std::size_t units) {
  if (units > max_work - work_)
    throw Failure{ErrorCode::resource_exhausted, "the template takes too many steps"};
  work_ += units;
}

void Interpreter::charge_memory(std::size_t bytes) {
  if (bytes > max_memory_bytes - memory_)
    throw Failure{ErrorCode::resource_exhausted,
                  fmt::format("the template makes values of more than {} MiB in all",
                              max_memory_bytes >> 20)};
  memory_ += bytes;
}

void Interpreter::charge_reading(const Value& value) {
  if (value.text()) {
    charge(1 + value.text()->size() / 64);
  } else {
    charge_walk(value);
  }
}

void Interpreter::charge_items(std::size_t count) {
  charge(count / 8);
  charge_memory(count * bytes_of_item);
}

std::string Interpreter::text_of(const Value& value) {
  charge_reading(value);
  return value.to_string();
}

std::vector<Value> Interpreter::items_of(const Value& value) {
  if (value.text()) {
    charge(value.text()->size());
    charge_memory(value.text()->size() * bytes_of_character);
  } else {
    charge(value.count() / 8);
  }
  return value.iterate();
}

Value Interpreter::call(const Value& function, const Arguments& arguments) {
  require_defined(function);
  const Nesting nesting(depth_);
  if (const Function* callable = function.function()) return callable->call(*this, arguments);
  if (const Loop* loop = function.loop()) return call_loop(*loop, arguments);
  throw invalid("a {} cannot be called", function.type_name());
}

std::optional<Value> Interpreter::own_attribute(const Value& object, std::string_view name) {
  require_defined(object);
  if (const Namespace* name_space = object.name_space()) {
    const Value* found = name_space->fields.find(name);
    return found ? std::optional(*found) : std::nullopt;
  }
  if (const auto* loop = object.get_if<std::shared_ptr<Loop>>()) return (*loop)->field(*loop, name);
  if (const Sequence* group = object.sequence(); group && group->kind == Sequence::Kind::group) {
    if (name == "grouper") return group->items[0];
    if (name == "list") return group->items[1];
  }
  if (!has_method(object, name)) return std::nullopt;
  if (would_change(object, name))
    return Value::undefined(
        fmt::format("{}() would change a {}, which a template may not", name, object.type_name()));
  return Value::function(
      std::string(name),
      [object, name = std::string(name)](Interpreter& interpreter, const Arguments& given) {
        return call_method(interpreter, object, name, given);
      },
      object);
}

Value Interpreter::attribute(const Value& object, std::string_view name) {
  if (auto found = own_attribute(object, name)) return *std::move(found);
  if (const Dict* dict = object.dict()) {
    charge(dict->entries.size() / 64);
    if (const Value* found = dict->find(name)) return *found;
  }
  return Value::undefined(
      fmt::format("'{} object' has no attribute '{}'", object.type_name(), name));
}

Value Interpreter::subscript(const Value& object, const Value& key) {
  require_defined(object);
  if (const Dict* dict = object.dict()) {
    charge(dict->entries.size() / 64);
    if (const Value* found = dict->find(key)) return *found;
  }
  const Sequence* sequence = object.sequence();
  if (key.is_integer() && ((sequence && !sequence->is_view()) || object.text())) {
    if (object.text()) charge_walk(object);
    const auto size = static_cast<std::int64_t>(object.count());
    const std::int64_t index = key.integer() < 0 ? key.integer() + size : key.integer();
    if (index >= 0 && index < size) {
      if (sequence) return sequence->items[static_cast<std::size_t>(index)];
      return slice(object, Value(index), Value(index + 1), {});
    }
  }
  if (key.text())
    if (auto found = own_attribute(object, *key.text())) return *std::move(found);
  return Value::undefined(fmt::format("'{} object' has no element {}", object.type_name(),
                                      key.extent().weight < 100 ? key.repr() : key.type_name()));
}

std::shared_ptr<Namespace> Interpreter::make_namespace() {
  charge_memory(bytes_of_scope);
  namespaces_.push_back(std::make_shared<Namespace>());
  return namespaces_.back();
}

Interpreter::Flow Interpreter::execute(const Block& block, std::string& out) {
  const Nesting nesting(depth_);
  for (const Statement& statement : block) {
    line_ = statement.line;
    charge(1);
    const Flow flow =
        std::visit([&](const auto& form) { return execute(form, out); }, statement.form);
    if (flow != Flow::onward) return flow;
  }
  return Flow::onward;
}

Interpreter::Flow Interpreter::execute_inside(const Block& block, std::string& out) {
  const auto outer = scope_;
  scope_ = std::make_shared<Scope>(Scope{outer, {}});
  const Flow flow = execute(block, out);
  scope_ = outer;
  return flow;
}

void Interpreter::append(std::string_view text, std::string& out) {
  charge_text(text.size());
  check_text_size(out.size() + text.size());
  out += text;
}

Interpreter::Flow Interpreter::execute(const OutputText& text, std::string& out) {
  append(text.text, out);
  return Flow::onward;
}

Interpreter::Flow Interpreter::execute(const OutputValue& output, std::string& out) {
  const Value value = evaluate(*output.value);
  if (value.text()) {
    append(*value.text(), out);
  } else {
    append(text_of(value), out);
  }
  return Flow::onward;
}

void Interpreter::assign(const Target& target, Value value) {
  if (target.unpacks) {
    const std::vector<Value> items = items_of(value);
    if (items.size() != target.parts.size())
      throw invalid("cannot unpack {} values into {} names", items.size(), target.parts.size());
    for (std::size_t i = 0; i < items.size(); ++i) assign(target.parts[i], items[i]);
    return;
  }
  charge(scope_->values.size() / 64);
  if (target.attribute.empty()) {
    scope_->set(target.name, std::move(value));
    return;
  }
  const Value* object = scope_->find(target.name);
  if (object == nullptr || object->name_space() == nullptr)
    throw invalid("'{}' is no namespace, so that its attributes cannot be set", target.name);
  object->name_space()->fields.set(Value(target.attribute), std::move(value));
}

Interpreter::Flow Interpreter::execute(const std::unique_ptr<const Set>& set, std::string&) {
  if (set->value) {
    assign(set->target, evaluate(*set->value));
    return Flow::onward;
  }
  std::string text;
  const Flow flow = execute_inside(set->body, text);
  if (flow != Flow::onward) return flow;
  charge_memory(text.size());
  assign(set->target,
         set->filter ? filtered(set->filter, std::move(text)) : Value(std::move(text)));
  return Flow::onward;
}

Interpreter::Flow Interpreter::execute(const std::unique_ptr<const If>& branches,
                                       std::string& out) {
  for (const auto& [condition, block] : branches->branches)
    if (evaluate(*condition).is_true()) return execute(block, out);
  return execute(branches->otherwise, out);
}

Interpreter::Flow Interpreter::execute(const FilterBlock& block, std::string& out) {
  std::string text;
  const Flow flow = execute_inside(block.body, text);
  if (flow != Flow::onward) return flow;
  charge_memory(text.size());
  const Value value = filtered(block.filter, std::move(text));
  if (!value.text()) throw invalid("a filter of a block gives a {}, no text", value.type_name());
  append(*value.text(), out);
  return Flow::onward;
}

Interpreter::Flow Interpreter::execute(const With& with, std::string& out) {
  std::vector<Value> values;
  for (const auto& [target, value] : with.variables) values.push_back(evaluate(*value));
  const auto outer = scope_;
  scope_ = std::make_shared<Scope>(Scope{outer, {}});
  for (std::size_t i = 0; i < values.size(); ++i) assign(with.variables[i].first, values[i]);
  const Flow flow = execute(with.body, out);
  scope_ = outer;
  return flow;
}

Interpreter::Flow Interpreter::execute(const Jump& jump, std::string&) {
  return jump == Jump::leave_loop ? Flow::leave_loop : Flow::next_iteration;
}

Value Interpreter::filtered(const ExpressionPtr& filter, std::string text) {
  block_text_ = Value(std::move(text));
  return evaluate(*filter);
}

}  // namespace troupe::jinja
