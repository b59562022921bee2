#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "runtime/base/result.hpp"

namespace troupe {

/// An entry of the lists of modules in a quantization_config. It is about a module by one of:
///   - "re:" and a regular expression (PCRE2) that matches the beginning of the module's name
///     (compressed-tensors);
///   - the class Linear, which all matrices are of;
///   - a name, of the module or of one that it is part of, from any part of the path on:
///     "lm_head", "mlp.gate", "model.layers.0"; "*" stands for any text (ModelOpt, GPT-OSS).
/// A value; const functions may be called from any thread.
class ModulePattern {
 public:
  /// Errors: unsupported for an expression that PCRE2 does not take.
  static Result<ModulePattern> parse(std::string_view text);

  bool is_about(std::string_view module) const;
  /// True if it is about all matrices, by their class.
  bool is_of_class() const { return text_ == "Linear"; }

 private:
  explicit ModulePattern(std::string_view text) : text_(text) {}

  struct Expression;

  std::string text_;
  std::shared_ptr<const Expression> expression_;  ///< of "re:"
};

}  // namespace troupe
