// The interpreter's loops and their `loop` objects.
#include "models/text/jinja/loop.hpp"

#include "models/text/jinja/failure.hpp"

namespace troupe::jinja {
namespace {

constexpr std::size_t work_of_iteration = 5;

Value cycle(std::size_t at, const Arguments& choices) {
  const auto count = choices.positional.size();
  if (count == 0) throw invalid("loop.cycle() of nothing");
  return choices.positional[at % count];
}

Value changed(const std::shared_ptr<Loop>& loop, Interpreter& interpreter,
              const Arguments& arguments) {
  for (const Value& value : arguments.positional) interpreter.charge_walk(value);
  const bool is_same =
      loop->last_seen && Value::tuple(*loop->last_seen).equals(Value::tuple(arguments.positional));
  loop->last_seen = arguments.positional;
  return !is_same;
}

}  // namespace

std::optional<Value> Loop::field(const std::shared_ptr<Loop>& self, std::string_view name) const {
  const auto size = static_cast<std::int64_t>(items.size());
  const auto index = static_cast<std::int64_t>(at);
  if (name == "index") return index + 1;
  if (name == "index0") return index;
  if (name == "revindex") return size - index;
  if (name == "revindex0") return size - index - 1;
  if (name == "first") return index == 0;
  if (name == "last") return index == size - 1;
  if (name == "length") return size;
  if (name == "depth") return std::int64_t{level} + 1;
  if (name == "depth0") return std::int64_t{level};
  if (name == "previtem")
    return at > 0 ? items[at - 1] : Value::undefined("there is no previous item");
  if (name == "nextitem")
    return at + 1 < items.size() ? items[at + 1] : Value::undefined("there is no next item");
  const Value kept = Value::Form(self);
  if (name == "cycle")
    return Value::function(
        "cycle", [i = at](Interpreter&, const Arguments& choices) { return cycle(i, choices); });
  if (name == "changed")
    return Value::function(
        "changed",
        [self](Interpreter& interpreter, const Arguments& arguments) {
          return changed(self, interpreter, arguments);
        },
        kept);
  return std::nullopt;
}

std::vector<Value> Interpreter::loop_items(const For& loop, const Value& iterable) {
  std::vector<Value> items = items_of(iterable);
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

Interpreter::Flow Interpreter::run_loop(const For& loop, const Value& iterable, int level,
                                        std::string& out) {
  const auto outer = scope_;
  const auto state = std::make_shared<Loop>();
  state->statement = &loop;
  state->outer = outer;
  state->items = loop_items(loop, iterable);
  state->level = level;
  if (state->items.empty()) return execute_inside(loop.otherwise, out);
  Extent extent;
  for (const Value& item : state->items) extent.add(item);
  state->depth = extent.depth;
  charge_memory(state->items.size() * sizeof(Value));
  for (; state->at < state->items.size(); ++state->at) {
    charge(work_of_iteration);
    scope_ = std::make_shared<Scope>(Scope{outer, {}});
    scope_->set("loop", Value(Value::Form(state)));
    assign(loop.target, state->items[state->at]);
    if (execute(loop.body, out) == Flow::leave_loop) break;
  }
  scope_ = outer;
  return Flow::onward;
}

Interpreter::Flow Interpreter::execute(const std::unique_ptr<const For>& loop, std::string& out) {
  return run_loop(*loop, evaluate(*loop->iterable), 0, out);
}

std::string Interpreter::call_loop(const Loop& loop, const Arguments& arguments) {
  if (!loop.statement->is_recursive)
    throw invalid("a loop that is called must be marked 'recursive'");
  if (arguments.positional.size() != 1 || !arguments.named.empty())
    throw invalid("loop() takes one list");
  const auto caller = scope_;
  const int line = line_;
  scope_ = loop.outer;
  std::string out;
  run_loop(*loop.statement, arguments.positional[0], loop.level + 1, out);
  scope_ = caller;
  line_ = line;
  charge_memory(out.size());
  return out;
}

}  // namespace troupe::jinja
