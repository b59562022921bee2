#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include <nlohmann/json_fwd.hpp>

#include "runtime/base/result.hpp"

namespace troupe::jinja {

/// A template in the language of Jinja 3.1, with Python's semantics and transformers' settings:
/// trim_blocks, lstrip_blocks, loop controls, `generation`, raise_exception, strftime_now, a tojson
/// that keeps non-ASCII characters and the order of keys.
///
/// Known differences: integers have 64 bits; include, extends, import, block and autoescape are
/// refused, as are a few rare filters and methods, and printing what Python prints with an address.
///
/// render() may be called from any thread.
class Template {
 public:
  /// `name` is the template's name in messages, e.g. its path. Errors: corrupt_data, unsupported.
  static Result<Template> parse(std::string_view source, std::string name);

  /// Renders the template with `variables` (an object). `now`, in seconds since 1970, is the UTC
  /// time for strftime_now. Errors: invalid_argument if the values do not fit or the template
  /// raises an exception; unsupported; resource_exhausted if it takes too many steps or makes too
  /// long a text. Messages begin "name:line: ".
  Result<std::string> render(const nlohmann::ordered_json& variables, std::int64_t now) const;

 private:
  struct Body;
  Template(std::string name, std::shared_ptr<const Body> body);

  std::string name_;
  std::shared_ptr<const Body> body_;
};

}  // namespace troupe::jinja
