#pragma once

#include <memory>
#include <string>
#include <string_view>

#include <nlohmann/json_fwd.hpp>

#include "runtime/base/result.hpp"

namespace troupe::jinja {

/// A template in the part of Jinja 2 that chat templates are written in, with Python's semantics
/// and transformers' settings: trim_blocks, lstrip_blocks, loop controls, raise_exception,
/// strftime_now, a tojson that keeps non-ASCII characters and the order of keys.
///
/// Known differences: integers have 64 bits; case mapping is one code point to one; strings are
/// not formatted by `%` and format(); include, extends, import, call, filter blocks and recursive
/// loops are refused.
///
/// render() may be called from any thread.
class Template {
 public:
  /// `name` is what messages call the template, e.g. its path. Errors: corrupt_data, unsupported.
  static Result<Template> parse(std::string_view source, std::string name);

  /// The text of the template with `variables` (an object). Errors: invalid_argument if the values
  /// do not fit or the template raises an exception; unsupported; resource_exhausted if it takes
  /// too many steps or makes too long a text. Messages begin "name:line: ".
  Result<std::string> render(const nlohmann::ordered_json& variables) const;

 private:
  struct Body;
  Template(std::string name, std::shared_ptr<const Body> body);

  std::string name_;
  std::shared_ptr<const Body> body_;
};

}  // namespace troupe::jinja
