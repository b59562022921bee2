#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "launcher/batch/input/request_parser.hpp"

namespace troupe {

/// Identity shared by all answers of a job.
struct JobIdentity {
  std::uint64_t id = 0;      ///< part of every answer's id; from make_job_id
  std::int64_t created = 0;  ///< the job's start, seconds since 1970
};

/// The longest line of an output, so that each can be read again when a job is resumed.
inline constexpr std::size_t max_answer_line_bytes = std::size_t{1} << 30;

/// A job's id: a fixed function of its name and input path.
std::uint64_t make_job_id(std::string_view name, std::string_view input_path);

/// One line of the output file, without its newline: {id, custom_id, response, error}. The body is
/// OpenAI's chat.completion or text_completion; each choice has vLLM's stop_reason (the stop string
/// or the stop token's id; null if the limit or the model's own end came), and token_ids,
/// prompt_token_ids and prompt_logprobs where they were asked for (the last two in the choices of a
/// completion, beside those of a chat: as vLLM). usage counts the prompt once and the tokens of all
/// choices. Choices and usage are a function of header and completion alone; keys have a fixed
/// order. A completion that failed becomes an error line.
///
/// logprobs of completions: tokens, token_logprobs, top_logprobs (the chosen token and the best
/// ones, as OpenAI: up to n + 1), text_offset (code points from the beginning of the text; parts of
/// a character have its place). A token that is no whole character is spelled "bytes:\xe4\xb8", as
/// OpenAI does. With echo the prompt's tokens come first, the first of them with null.
std::string format_answer(const RequestHeader& header, const Completion& completion,
                          const JobIdentity& job);

/// As format_answer, but an answer whose line would be longer than `max_bytes` becomes an error, in
/// `completion` too: whoever counts that afterwards counts what was written.
std::string fit_answer(const RequestHeader& header, Completion& completion, const JobIdentity& job,
                       std::size_t max_bytes = max_answer_line_bytes);

/// The error line {id, custom_id or null, line, response, error: {code, message}}. response is what
/// a server would have answered: {status_code, request_id, body: {error: {message, type, param or
/// null, code}}}, as in the files of OpenAI and vLLM.
std::string format_error(const LineError& error, const JobIdentity& job);

}  // namespace troupe
