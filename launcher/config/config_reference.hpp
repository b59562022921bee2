#pragma once

#include <string>

namespace troupe {

/// Returns the page docs/configuration.md, generated from the schema that validates the YAML:
/// rules, then a section of Markdown for every key with its type, values, default and meaning.
/// Lines have at most 100 columns where words allow it.
std::string configuration_reference();

}  // namespace troupe
