// The interpreter's macros, and the blocks passed to them.
#include "models/text/jinja/failure.hpp"
#include "models/text/jinja/interpreter.hpp"

namespace troupe::jinja {

Value Interpreter::make_macro(std::shared_ptr<const Macro> macro) {
  constexpr std::size_t bytes_kept = 1024;
  charge_memory(bytes_kept);
  captured_scopes_.push_back(scope_);
  const std::string name = macro->name;
  // The scope outlives the call: it is kept above, and only this interpreter calls a macro.
  return Value::Form(std::make_shared<const Function>(
      Function{name, true, 1,
               [macro = std::move(macro), scope = std::weak_ptr<Scope>(scope_)](
                   Interpreter& interpreter, const Arguments& arguments) {
                 return interpreter.call_macro(*macro, scope.lock(), arguments);
               }}));
}

Interpreter::Flow Interpreter::execute(const std::shared_ptr<const Macro>& macro, std::string&) {
  scope_->set(macro->name, make_macro(macro));
  return Flow::onward;
}

Interpreter::Flow Interpreter::execute(const CallBlock& block, std::string& out) {
  const Value caller = make_macro(block.caller);
  const Value text = evaluate_call(std::get<Call>(block.call->form), &caller);
  append(text_of(text), out);
  return Flow::onward;
}

/// Sets the parameters of `macro` in the current scope, which is the macro's own.
void Interpreter::bind_parameters(const Macro& macro, const Arguments& arguments) {
  const auto& given = arguments.positional;
  auto named = arguments.named;
  const auto take_named = [&](std::string_view name) -> std::optional<Value> {
    for (auto at = named.begin(); at != named.end(); ++at) {
      if (at->first != name) continue;
      Value value = std::move(at->second);
      named.erase(at);
      return value;
    }
    return std::nullopt;
  };
  std::vector<const ExpressionPtr*> missing(macro.parameters.size(), nullptr);
  for (std::size_t i = 0; i < macro.parameters.size(); ++i) {
    const auto& [name, fallback] = macro.parameters[i];
    auto value = i < given.size() ? std::optional(given[i]) : take_named(name);
    if (!value) missing[i] = &fallback;
    scope_->set(name, value ? *std::move(value)
                            : Value::undefined(fmt::format("parameter '{}' was not given", name)));
  }
  if (macro.takes_caller) {
    auto caller = take_named("caller");
    scope_->set("caller", caller && !caller->is_none() ? *std::move(caller)
                                                       : Value::undefined("no caller is defined"));
  }
  if (macro.takes_kwargs) {
    Dict kwargs;
    for (auto& [name, value] : named) kwargs.set(Value(name), std::move(value));
    scope_->set("kwargs", std::move(kwargs));
  } else if (!named.empty()) {
    throw invalid("macro '{}' has no parameter '{}'", macro.name, named.front().first);
  }
  const std::size_t bound = std::min(given.size(), macro.parameters.size());
  if (macro.takes_varargs) {
    scope_->set("varargs",
                Value::tuple({given.begin() + static_cast<std::ptrdiff_t>(bound), given.end()}));
  } else if (given.size() > bound) {
    throw invalid("macro '{}' takes {} arguments, not {}", macro.name, macro.parameters.size(),
                  given.size());
  }
  for (std::size_t i = 0; i < missing.size(); ++i)
    if (missing[i] && *missing[i]) scope_->set(macro.parameters[i].first, evaluate(**missing[i]));
}

Value Interpreter::call_macro(const Macro& macro, const std::shared_ptr<Scope>& defined_in,
                              const Arguments& arguments) {
  const auto caller = scope_;
  const int line = line_;
  scope_ = std::make_shared<Scope>(Scope{defined_in, {}});
  bind_parameters(macro, arguments);
  std::string out;
  if (execute(macro.body, out) != Flow::onward)
    throw invalid("'break' or 'continue' outside a loop");
  scope_ = caller;
  line_ = line;
  charge_memory(out.size());
  return out;
}

}  // namespace troupe::jinja
