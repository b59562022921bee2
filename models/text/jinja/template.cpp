#include "models/text/jinja/template.hpp"

#include <algorithm>

#include <nlohmann/json.hpp>

#include "models/text/jinja/builtins.hpp"
#include "models/text/jinja/failure.hpp"
#include "models/text/jinja/interpreter.hpp"
#include "models/text/jinja/lexer.hpp"
#include "models/text/jinja/parser.hpp"
#include "models/text/unicode/utf8.hpp"

namespace troupe::jinja {

struct Template::Body {
  Block block;
};

Template::Template(std::string name, std::shared_ptr<const Body> body)
    : name_(std::move(name)), body_(std::move(body)) {}

Result<Template> Template::parse(std::string_view source, std::string name) {
  if (const auto invalid = text::find_invalid_utf8(source)) {
    return fail(ErrorCode::corrupt_data, "{}:{}: byte {} of the template is not UTF-8", name,
                1 + std::ranges::count(source.substr(0, *invalid), '\n'), *invalid);
  }
  try {
    return Template(name, std::make_shared<const Body>(Body{jinja::parse(tokenize(source))}));
  } catch (const Failure& failure) {
    return fail(failure.code, "{}:{}: {}{}", name, failure.line, failure.message,
                failure.code == ErrorCode::unsupported ? " is not supported" : "");
  }
}

Result<std::string> Template::render(const nlohmann::ordered_json& variables,
                                     std::int64_t now) const {
  auto globals = builtin_functions();
  int line = 0;
  try {
    for (const auto& [key, value] : variables.items())
      globals.emplace_back(key, Value::from_json(value));
    Interpreter interpreter(std::move(globals), now);
    try {
      return interpreter.run(body_->block);
    } catch (const Failure&) {
      line = interpreter.line();
      throw;
    }
  } catch (const Failure& failure) {
    return fail(failure.code, "{}:{}: {}{}", name_, line, failure.message,
                failure.code == ErrorCode::unsupported ? " is not supported" : "");
  }
}

}  // namespace troupe::jinja
