#include "launcher/batch/output/answer_format.hpp"

#include <charconv>

#include <fmt/format.h>

#include "launcher/batch/json_text.hpp"
#include "launcher/batch/output/answer_logprobs.hpp"
#include "launcher/batch/output/error_kind.hpp"
#include "runtime/base/hash.hpp"

namespace troupe {
namespace {

std::string answer_suffix(const JobIdentity& job, std::size_t line) {
  return fmt::format("{:016x}-{}", job.id, line);
}

std::string_view finish_reason(FinishReason reason) {
  return reason == FinishReason::length ? "length" : "stop";
}

void append_token_ids(std::string& out, std::string_view key,
                      const std::vector<std::int32_t>& ids) {
  out += fmt::format(",\"{}\":[", key);
  char digits[16];
  for (std::size_t i = 0; i < ids.size(); ++i) {
    if (i > 0) out += ',';
    const auto [end, error] = std::to_chars(digits, digits + sizeof(digits), ids[i]);
    out.append(digits, end);
  }
  out += ']';
}

/// Appends the fields that a completion has in each choice and a chat once in its body.
void append_prompt_parts(std::string& out, const RequestHeader& header,
                         const Completion& completion) {
  if (header.prompt_logprobs) {
    out += ",\"prompt_logprobs\":";
    append_prompt_logprobs(out, completion);
  }
  if (header.return_token_ids) append_token_ids(out, "prompt_token_ids", completion.prompt_ids);
}

/// The stop string, the stop token's id, or null, as vLLM.
void append_stop_reason(std::string& out, const Choice& choice) {
  out += ",\"stop_reason\":";
  if (!choice.stop_string.empty()) {
    append_json_string(out, choice.stop_string);
  } else {
    out += choice.stop_token ? fmt::format("{}", *choice.stop_token) : "null";
  }
}

void append_choice(std::string& out, const RequestHeader& header, const Completion& completion,
                   std::size_t index) {
  const Choice& choice = completion.choices[index];
  out += fmt::format("{{\"index\":{},", index);
  if (header.endpoint == Endpoint::chat_completions) {
    out += R"("message":{"role":"assistant","content":)";
    append_json_string(out, choice.text);
    out += "},\"logprobs\":";
    header.logprobs ? append_chat_logprobs(out, choice) : void(out += "null");
  } else {
    out += "\"text\":";
    append_json_string(out, header.echo ? completion.prompt_text + choice.text : choice.text);
    out += ",\"logprobs\":";
    header.logprobs ? append_completion_logprobs(out, completion, choice, header.echo)
                    : void(out += "null");
  }
  out += fmt::format(",\"finish_reason\":\"{}\"", finish_reason(choice.finish_reason));
  append_stop_reason(out, choice);
  if (header.return_token_ids) append_token_ids(out, "token_ids", choice.token_ids);
  if (header.endpoint == Endpoint::completions) append_prompt_parts(out, header, completion);
  out += '}';
}

/// The field that an error of the engine concerns; empty: no single one.
std::string_view param_of(const RequestHeader& header, std::string_view code) {
  if (code != "context_length_exceeded" && code != "invalid_prompt") return {};
  return header.endpoint == Endpoint::chat_completions ? "messages" : "prompt";
}

void append_member(std::string& out, std::string_view key, std::string_view text) {
  out += fmt::format("\"{}\":", key);
  append_json_string(out, text);
}

/// {message, type, param, code}, as OpenAI's servers answer.
void append_error_body(std::string& out, const LineError& error, std::string_view type) {
  out += '{';
  append_member(out, "message", error.message);
  out += ',';
  append_member(out, "type", type);
  out += ',';
  if (error.param.empty()) {
    out += "\"param\":null";
  } else {
    append_member(out, "param", error.param);
  }
  out += ',';
  append_member(out, "code", error.code);
  out += '}';
}

/// The line of format_answer, or its beginning if it is longer than `max_bytes`: then more of it
/// than that.
std::string format_some(const RequestHeader& header, const Completion& completion,
                        const JobIdentity& job, std::size_t max_bytes) {
  if (completion.failed()) {
    return format_error({header.line, completion.error_code, completion.error, header.custom_id,
                         std::string(param_of(header, completion.error_code))},
                        job);
  }
  const bool chat = header.endpoint == Endpoint::chat_completions;
  const std::string suffix = answer_suffix(job, header.line);
  std::string out = fmt::format("{{\"id\":\"batch_req_{}\",\"custom_id\":", suffix);
  append_json_string(out, header.custom_id);
  out +=
      fmt::format(R"(,"response":{{"status_code":200,"request_id":"req_{}","body":{{"id":"{}-{}",)"
                  R"("object":"{}","created":{},"model":)",
                  suffix, chat ? "chatcmpl" : "cmpl", suffix,
                  chat ? "chat.completion" : "text_completion", job.created);
  append_json_string(out, header.model);
  out += ",\"choices\":[";
  std::size_t generated = 0;
  for (std::size_t i = 0; i < completion.choices.size(); ++i) {
    if (i > 0) out += ',';
    append_choice(out, header, completion, i);
    generated += completion.choices[i].token_ids.size();
    if (out.size() > max_bytes) return out;
  }
  const std::size_t prompt = completion.prompt_ids.size();
  out += fmt::format(R"(],"usage":{{"prompt_tokens":{},"completion_tokens":{},"total_tokens":{}}})",
                     prompt, generated, prompt + generated);
  if (chat) append_prompt_parts(out, header, completion);
  out += "}},\"error\":null}";
  return out;
}

}  // namespace

std::uint64_t make_job_id(std::string_view name, std::string_view input_path) {
  return hash_128(input_path, hash_128(name).first).first;
}

std::string format_answer(const RequestHeader& header, const Completion& completion,
                          const JobIdentity& job) {
  return format_some(header, completion, job, std::string::npos);
}

std::string fit_answer(const RequestHeader& header, Completion& completion, const JobIdentity& job,
                       std::size_t max_bytes) {
  std::string line = format_some(header, completion, job, max_bytes);
  if (completion.failed() || line.size() <= max_bytes) return line;
  const std::uint64_t id = completion.id;
  completion = {};
  completion.id = id;
  completion.error_code = "answer_too_large";
  completion.error = fmt::format(
      "the answer takes more than the {} bytes that a line may have: lower n, max_tokens, logprobs "
      "or prompt_logprobs",
      max_bytes);
  return format_answer(header, completion, job);
}

std::string format_error(const LineError& error, const JobIdentity& job) {
  const std::string suffix = answer_suffix(job, error.line);
  const ErrorKind kind = error_kind(error.code);
  std::string out = fmt::format("{{\"id\":\"batch_req_{}\",\"custom_id\":", suffix);
  if (error.custom_id) {
    append_json_string(out, *error.custom_id);
  } else {
    out += "null";
  }
  out += fmt::format(R"(,"line":{},"response":{{"status_code":{},"request_id":"req_{}",)"
                     R"("body":{{"error":)",
                     error.line, kind.status_code, suffix);
  append_error_body(out, error, kind.type);
  out += "}},\"error\":{";
  append_member(out, "code", error.code);
  out += ',';
  append_member(out, "message", error.message);
  out += "}}";
  return out;
}

}  // namespace troupe
