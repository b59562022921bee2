#pragma once

#include <string>

namespace troupe {

/// The page docs/configuration.md, made from the schema that validates the YAML: rules, then a
/// section of Markdown for every key with its type, values and default, and its meaning. Lines of
/// at most 100 columns where words allow it.
std::string configuration_reference();

}  // namespace troupe
