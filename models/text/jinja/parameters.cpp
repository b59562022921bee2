#include "models/text/jinja/parameters.hpp"

#include "models/text/jinja/failure.hpp"

namespace troupe::jinja {

Bound::Bound(std::string_view name, std::string_view parameters, const Arguments& arguments) {
  const bool by_position_only = parameters.starts_with('/');
  if (by_position_only) parameters.remove_prefix(1);
  std::size_t count = 0, named = 0;
  while (!parameters.empty()) {
    std::string_view parameter = parameters.substr(0, parameters.find(' '));
    parameters.remove_prefix(std::min(parameters.size(), parameter.size() + 1));
    const bool is_optional = parameter.ends_with('=');
    if (is_optional) parameter.remove_suffix(1);
    const Value* given = by_position_only ? nullptr : arguments.find_named(parameter);
    if (given) ++named;
    if (count < arguments.positional.size()) {
      if (given) throw invalid("{}() is given '{}' twice", name, parameter);
      given = &arguments.positional[count];
    }
    if (!given && !is_optional) throw invalid("{}() needs the argument '{}'", name, parameter);
    values_[count++] = given;
  }
  if (arguments.positional.size() > count)
    throw invalid("{}() takes {} arguments, not {}", name, count, arguments.positional.size());
  if (arguments.named.size() > named)
    throw invalid("{}() does not take all of the named arguments it is given, e.g. '{}'", name,
                  arguments.named.front().first);
}

}  // namespace troupe::jinja
