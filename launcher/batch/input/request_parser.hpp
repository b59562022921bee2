#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "actors/api/request.hpp"

namespace troupe {

/// The two URLs that a line may request.
enum class Endpoint : std::uint8_t { chat_completions, completions };

/// What the answer needs from its line; kept until the Completion comes.
struct RequestHeader {
  std::size_t line = 0;  ///< in the input file, counted from 1
  std::string custom_id;
  Endpoint endpoint = Endpoint::chat_completions;
  std::string model;  ///< the name the request used, or the first served name
  bool echo = false;  ///< completions: the answer begins with the prompt
  bool logprobs = false;
  bool prompt_logprobs = false;
  bool return_token_ids = false;
};

/// A valid line. The caller sets `request.id`, left 0; `request.seed` is resolved.
struct BatchRequest {
  RequestHeader header;
  Request request;
};

/// An invalid line: becomes an error line of the output.
struct LineError {
  std::size_t line = 0;
  std::string code;     ///< one of the codes below, for programs
  std::string message;  ///< for a person: names the field, its value and what is allowed
  std::optional<std::string> custom_id;
  std::string param = {};  ///< the field of envelope or body concerned; empty: no single one
};

/// The values of LineError::code.
namespace line_error {
inline constexpr std::string_view invalid_utf8 = "invalid_utf8";
inline constexpr std::string_view invalid_json = "invalid_json";
inline constexpr std::string_view line_too_long = "line_too_long";
inline constexpr std::string_view missing_custom_id = "missing_custom_id";
inline constexpr std::string_view duplicate_custom_id = "duplicate_custom_id";
inline constexpr std::string_view invalid_method = "invalid_method";
inline constexpr std::string_view invalid_url = "invalid_url";
inline constexpr std::string_view model_not_found = "model_not_found";
inline constexpr std::string_view invalid_value = "invalid_value";      ///< type or range
inline constexpr std::string_view missing_field = "missing_field";      ///< messages, prompt, body
inline constexpr std::string_view unknown_field = "unknown_field";      ///< of the body
inline constexpr std::string_view unsupported = "not_in_this_version";  ///< known, but not
                                                                        ///< supported yet
}  // namespace line_error

/// Lines longer than this many bytes, newline not counted, are errors.
inline constexpr std::size_t max_line_bytes = std::size_t{16} << 20;

/// The settings that a line is checked against.
struct ParseContext {
  /// At least one, the first of them not "*", which stands for any. A request may prefix an owner:
  /// "meta-llama/Llama-3-8B" names "Llama-3-8B".
  std::vector<std::string> served_model_names;
  std::uint64_t job_seed = 0;
};

/// Reads one line of an OpenAI batch input file, without its line end.
///
/// The envelope is {custom_id, method: "POST", url, body}; other keys beside these are ignored. In
/// the body null means "not given". docs/operations.md lists the fields and their ranges. user,
/// metadata, store, service_tier, safety_identifier, prompt_cache_key and parallel_tool_calls have
/// no effect on an answer here and are accepted. Fields that OpenAI or vLLM know but this version
/// does not support are accepted with a value that has no effect (stream: false), otherwise an
/// error; all other fields are errors.
///
/// A chat becomes PromptKind::messages: `request.prompt` is a JSON array of {role, content[, name]}
/// with content as one string (text parts joined by newlines). Without max_tokens a completion gets
/// OpenAI's 16; a chat leaves it absent. top_k -1 becomes 0. Never throws, and uses memory in
/// proportion to the line. Callable from any thread.
std::variant<BatchRequest, LineError> parse_line(std::string_view line, std::size_t line_number,
                                                 const ParseContext& context);

/// The seed of a request without one: a fixed function of job seed and custom_id.
std::uint64_t derive_seed(std::uint64_t job_seed, std::string_view custom_id);

}  // namespace troupe
