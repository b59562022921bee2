#include "launcher/batch/input/request_parser.hpp"
#include "models/text/unicode/utf8.hpp"
#include "tests/support/checkpoint_folder.hpp"
#include "tests/unit/fuzz/targets/mutator.hpp"
#include "tests/unit/fuzz/targets/targets.hpp"

namespace troupe::fuzz {
namespace {

using nlohmann::ordered_json;

constexpr std::string_view words[] = {"\"stop\": [\"a\", \"\"],",
                                      "\"n\": 128,",
                                      "\"best_of\": 2,",
                                      "\"logit_bias\": {\"5\": 100},",
                                      "\"top_logprobs\": 20,",
                                      "\"seed\": -1,",
                                      "\"temperature\": 1e-9,",
                                      "null",
                                      "\\ud800",
                                      "\"max_tokens\": 99999999999999999999,",
                                      "[[[[",
                                      "\"echo\": true,",
                                      "\"min_tokens\": 3,",
                                      "\"bad_words\": [\"x\"],",
                                      "\"use_beam_search\": true,"};

std::vector<std::string> lines() {
  std::vector<std::string> all = {
      R"({"custom_id": "a", "method": "POST", "url": "/v1/chat/completions", "body": {"model": "m", "messages": [{"role": "system", "content": "s"}, {"role": "user", "content": [{"type": "text", "text": "t"}]}], "temperature": 0.5, "top_p": 0.9, "top_k": 4, "min_p": 0.1, "seed": 3, "max_completion_tokens": 5, "logprobs": true, "top_logprobs": 3, "n": 2, "stop": ["x", "yz"], "presence_penalty": 0.5, "frequency_penalty": -1, "repetition_penalty": 1.1, "logit_bias": {"7": -100}}})",
      R"({"custom_id": "b", "method": "POST", "url": "/v1/completions", "body": {"prompt": [1, 2, 3], "max_tokens": 4, "echo": true, "logprobs": 2, "stop_token_ids": [5], "ignore_eos": true, "min_tokens": 1, "allowed_token_ids": [1, 2], "bad_words": ["no"], "best_of": 3, "n": 2, "return_token_ids": true}})",
  };
  return all;
}

}  // namespace

void changed_batch_lines(Effort effort) {
  const std::vector<std::string> originals = lines();
  const ParseContext context{{"m"}, 7};
  std::size_t taken = 0;
  for_seeds(effort, [&](std::uint64_t seed) {
    Mutator mutator(seed);
    std::string line = originals[mutator.below(originals.size())];
    if (mutator.one_in(2)) {
      ordered_json json = ordered_json::parse(line);
      for (std::size_t i = 0, changes = 1 + mutator.below(3); i < changes; ++i) mutator.json(json);
      line = json.dump(-1, ' ', false, ordered_json::error_handler_t::replace);
    } else {
      line = mutator.bytes(line, words);
    }
    const auto parsed = parse_line(line, 9, context);
    if (const auto* error = std::get_if<LineError>(&parsed)) {
      EXPECT_EQ(error->line, 9U) << line;
      EXPECT_FALSE(error->code.empty()) << line;
      EXPECT_FALSE(error->message.empty()) << line;
      EXPECT_TRUE(text::is_valid_utf8(error->message)) << line;
      return;
    }
    ++taken;
    const auto& [header, request] = std::get<BatchRequest>(parsed);
    EXPECT_TRUE(text::is_valid_utf8(request.prompt)) << line;
    const bool scores_the_prompt = header.echo && header.logprobs;
    EXPECT_GE(request.max_tokens.value_or(1), scores_the_prompt ? 0 : 1) << line;
    EXPECT_GE(request.n, 1) << line;
    EXPECT_GE(request.best_of, request.n) << line;
    EXPECT_LE(request.best_of, max_choices) << line;
    for (const std::string& stop : request.stop) EXPECT_FALSE(stop.empty()) << line;
  });
  EXPECT_GT(taken, 0U);
}

}  // namespace troupe::fuzz
