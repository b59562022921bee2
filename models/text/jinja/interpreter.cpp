#include "models/text/jinja/interpreter.hpp"

#include "models/text/jinja/builtins.hpp"
#include "models/text/jinja/failure.hpp"
#include "models/text/jinja/nesting.hpp"
#include "models/text/jinja/operators.hpp"

namespace troupe::jinja {
namespace {

// A template of a large model with tools and hundreds of messages takes about 10^5 evaluations.
constexpr std::size_t max_work = 20'000'000;
constexpr std::size_t work_of_iteration = 20;

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

Interpreter::Interpreter(std::vector<std::pair<std::string, Value>> globals)
    : scope_(std::make_shared<Scope>()) {
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
  work_ += units;
  if (work_ > max_work)
    throw Failure{ErrorCode::resource_exhausted, "the template takes too many steps"};
}

Value Interpreter::call(const Value& function, const Arguments& arguments) {
  require_defined(function);
  const auto* callable = function.get_if<std::shared_ptr<const Function>>();
  if (callable == nullptr) throw invalid("a {} cannot be called", function.type_name());
  const Nesting nesting(depth_);
  return (*callable)->call(*this, arguments);
}

Value Interpreter::attribute(const Value& object, std::string_view name) {
  require_defined(object);
  if (const Namespace* name_space = object.name_space()) {
    if (const Value* found = name_space->fields.find(name)) return *found;
  } else if (has_method(object, name)) {
    return Value::function(
        std::string(name),
        [object, name = std::string(name)](Interpreter& interpreter, const Arguments& given) {
          return call_method(interpreter, object, name, given);
        });
  }
  if (const Dict* dict = object.dict())
    if (const Value* found = dict->find(name)) return *found;
  return Value::undefined(
      fmt::format("'{} object' has no attribute '{}'", object.type_name(), name));
}

Value Interpreter::subscript(const Value& object, const Value& key) {
  require_defined(object);
  if (const Dict* dict = object.dict())
    if (const Value* found = dict->find(key)) return *found;
  if (key.text()) return attribute(object, *key.text());
  if (key.is_integer() && (object.sequence() || object.text())) {
    const auto items = object.text() ? object.iterate() : std::vector<Value>{};
    if (object.text()) charge_text(object.text()->size());
    const auto& from = object.text() ? items : object.sequence()->items;
    const auto size = static_cast<std::int64_t>(from.size());
    const std::int64_t index = key.integer() < 0 ? key.integer() + size : key.integer();
    if (index >= 0 && index < size) return from[static_cast<std::size_t>(index)];
  }
  return Value::undefined(
      fmt::format("'{} object' has no element {}", object.type_name(), key.repr()));
}

std::shared_ptr<Namespace> Interpreter::make_namespace(std::string type_name) {
  charge(1);
  namespaces_.push_back(std::make_shared<Namespace>(Namespace{std::move(type_name), {}}));
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
  append(value.text() ? *value.text() : value.to_string(), out);
  return Flow::onward;
}

Interpreter::Flow Interpreter::execute(const Group& group, std::string& out) {
  return execute(group.body, out);
}

Interpreter::Flow Interpreter::execute(const Jump& jump, std::string&) {
  return jump == Jump::leave_loop ? Flow::leave_loop : Flow::next_iteration;
}

void Interpreter::assign(const Target& target, Value value) {
  if (!target.attribute.empty()) {
    const Value* object = scope_->find(target.names[0]);
    if (object == nullptr || object->name_space() == nullptr)
      throw invalid("'{}' is no namespace, so its attributes cannot be set", target.names[0]);
    object->name_space()->fields.set(target.attribute, std::move(value));
  } else if (!target.unpacks) {
    scope_->set(target.names[0], std::move(value));
  } else {
    const std::vector<Value> items = value.iterate();
    if (items.size() != target.names.size())
      throw invalid("{} values for {} names", items.size(), target.names.size());
    for (std::size_t i = 0; i < items.size(); ++i) scope_->set(target.names[i], items[i]);
  }
}

Interpreter::Flow Interpreter::execute(const std::unique_ptr<const Set>& set, std::string&) {
  if (set->value) {
    assign(set->target, evaluate(*set->value));
    return Flow::onward;
  }
  const auto outer = scope_;
  scope_ = std::make_shared<Scope>(Scope{outer, {}});
  std::string text;
  const Flow flow = execute(set->body, text);
  scope_ = outer;
  assign(set->target, std::move(text));
  return flow;
}

Interpreter::Flow Interpreter::execute(const std::unique_ptr<const If>& branches,
                                       std::string& out) {
  for (const auto& [condition, block] : branches->branches)
    if (evaluate(*condition).is_true()) return execute(block, out);
  return execute(branches->otherwise, out);
}

std::vector<Value> Interpreter::loop_items(const For& loop) {
  const Value iterable = evaluate(*loop.iterable);
  if (iterable.text()) charge_text(iterable.text()->size());
  std::vector<Value> items = iterable.iterate();
  charge(items.size() / 8);
  if (!loop.condition) return items;
  const auto outer = scope_;
  std::vector<Value> kept;
  for (Value& item : items) {
    scope_ = std::make_shared<Scope>(Scope{outer, {}});
    assign(loop.target, item);
    if (evaluate(*loop.condition).is_true()) kept.push_back(std::move(item));
  }
  scope_ = outer;
  return kept;
}

Interpreter::Flow Interpreter::execute(const std::unique_ptr<const For>& loop, std::string& out) {
  const std::vector<Value> items = loop_items(*loop);
  if (items.empty()) return execute(loop->otherwise, out);
  const auto outer = scope_;
  const auto state = make_namespace("loop");
  const auto size = static_cast<std::int64_t>(items.size());
  const auto neighbour = [&](std::int64_t i) {
    return i >= 0 && i < size ? items[static_cast<std::size_t>(i)]
                              : Value::undefined("there is no such item of the loop");
  };
  Dict& fields = state->fields;
  for (std::int64_t i = 0; i < size; ++i) {
    charge(work_of_iteration);
    fields.set("index", i + 1);
    fields.set("index0", i);
    fields.set("revindex", size - i);
    fields.set("revindex0", size - i - 1);
    fields.set("first", i == 0);
    fields.set("last", i == size - 1);
    fields.set("length", size);
    fields.set("previtem", neighbour(i - 1));
    fields.set("nextitem", neighbour(i + 1));
    fields.set("cycle", Value::function("cycle", [i](Interpreter&, const Arguments& choices) {
                 const auto count = choices.positional.size();
                 if (count == 0) throw invalid("loop.cycle() of nothing");
                 return choices.positional[static_cast<std::size_t>(i) % count];
               }));
    scope_ = std::make_shared<Scope>(Scope{outer, {}});
    scope_->set("loop", Value(Value::Form(state)));
    assign(loop->target, items[static_cast<std::size_t>(i)]);
    if (execute(loop->body, out) == Flow::leave_loop) break;
  }
  scope_ = outer;
  return Flow::onward;
}

Interpreter::Flow Interpreter::execute(const std::shared_ptr<const Macro>& macro, std::string&) {
  captured_scopes_.push_back(scope_);
  // The scope outlives the call: it is kept above, and a macro is called by this interpreter only.
  scope_->set(
      macro->name,
      Value::function(macro->name, [macro, scope = std::weak_ptr<Scope>(scope_)](
                                       Interpreter& interpreter, const Arguments& arguments) {
        return interpreter.call_macro(*macro, scope.lock(), arguments);
      }));
  return Flow::onward;
}

Value Interpreter::call_macro(const Macro& macro, const std::shared_ptr<Scope>& defined_in,
                              const Arguments& arguments) {
  if (arguments.positional.size() > macro.parameters.size())
    throw invalid("macro '{}' takes {} arguments, not {}", macro.name, macro.parameters.size(),
                  arguments.positional.size());
  for (const auto& [name, value] : arguments.named) {
    bool is_known = false;
    for (const auto& [parameter, fallback] : macro.parameters) is_known |= parameter == name;
    if (!is_known) throw invalid("macro '{}' has no parameter '{}'", macro.name, name);
  }
  const auto caller = scope_;
  const int line = line_;
  scope_ = std::make_shared<Scope>(Scope{defined_in, {}});
  for (std::size_t i = 0; i < macro.parameters.size(); ++i) {
    const auto& [name, fallback] = macro.parameters[i];
    const Value* given = arguments.find(i, name);
    scope_->set(name, given ? *given
                      : fallback
                          ? evaluate(*fallback)
                          : Value::undefined(fmt::format("parameter '{}' was not given", name)));
  }
  std::string out;
  if (execute(macro.body, out) != Flow::onward)
    throw invalid("'break' or 'continue' outside a loop");
  scope_ = caller;
  line_ = line;
  return out;
}

}  // namespace troupe::jinja
