// What policies of the KV cache cost in quality, and what they save: mean negative log-likelihood
// of held-out text beside the memory of a sequence and the speed of decode steps.
//
//   bench_kv_policies [MODEL FOLDER] [THREADS]
//
// Sequences of 512 and of 2,048 tokens, 8 at a time: the first half is a prompt, the other tokens
// follow one a step, as if they were generated, and are scored. At the end streaming reads all
// 51,200 tokens as one sequence, of which the positions are many times those of the model. Speed is
// by CPU time, which other processes disturb less.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <memory>
#include <optional>

#include <fmt/format.h>

#include "actors/worker/kv_compactor.hpp"
#include "actors/worker/pass.hpp"
#include "actors/worker/sequence_table.hpp"
#include "models/families/family.hpp"
#include "models/ops/cpu/cpu_ops.hpp"
#include "tests/golden/support/golden_model.hpp"

namespace troupe {
namespace {

constexpr std::int32_t together = 8, block_size = 16;
constexpr std::int64_t step_rows = 512;

using Tokens = std::vector<std::int32_t>;

/// What one policy comes to.
struct Figures {
  double nll = 0.0;  ///< of a scored token
  std::int64_t scored = 0;
  double decode_seconds = 0.0;  ///< of CPU time
  std::int64_t decoded = 0;
  std::int64_t decode_blocks = 0;  ///< the most of a sequence while it decodes
};

/// Feeds known tokens to a model under a policy. Each sequence has blocks of its own.
class Reader {
 public:
  static Result<Reader> create(const std::filesystem::path& folder, const KvPolicy& policy,
                               std::int64_t positions, std::int64_t prompt_tokens, int threads) {
    Reader reader;
    reader.policy_ = policy;
    TROUPE_TRY(reader.ops_, make_cpu_ops({.threads = threads, .dtype = DType::f32}));
    TROUPE_TRY(const ModelConfig config, load_model_config(folder));
    TROUPE_TRY(const Checkpoint checkpoint, Checkpoint::open(folder));
    const ModelLimits limits{.max_batch_tokens = step_rows,
                             .max_head_rows = step_rows,
                             .max_positions = positions,
                             .block_size = block_size,
                             .kv_policy = policy};
    TROUPE_TRY(reader.model_, load_model(config, checkpoint, *reader.ops_, {}, limits));
    reader.blocks_each_ = policy.most_entries(positions, prompt_tokens) / block_size + 1;
    const std::int64_t blocks = together * reader.blocks_each_;
    TROUPE_CHECK(reader.model_->allocate_kv_cache(blocks));
    TROUPE_TRY(Pass pass, Pass::create(*reader.ops_, reader.model_->limits(), blocks, 1));
    reader.pass_.emplace(std::move(pass));
    TROUPE_TRY(KvCompactor compactor,
               KvCompactor::create(*reader.ops_, reader.model_->limits(), blocks));
    reader.compactor_.emplace(std::move(compactor));
    reader.table_.emplace(*reader.model_, blocks, true);
    reader.logits_ = HostTensor(DType::f32, {step_rows, config.vocab_size});
    return reader;
  }

  std::size_t bytes_per_block() const { return model_->kv_bytes_per_block(); }

  /// Reads the sequences together: the prompt in chunks, then a token of each a step; scores the
  /// tokens from `scored_from` on.
  Result<void> read(const std::vector<Tokens>& texts, std::int32_t prompt, std::int32_t scored_from,
                    bool decodes, Figures& figures) {
    StepPlan starts;
    for (std::size_t i = 0; i < texts.size(); ++i) {
      starts.started.push_back({static_cast<SequenceId>(i), texts[i], prompt, 0, {}});
    }
    TROUPE_TRY(const CacheMoves nothing, table_->apply(starts));
    const auto end = static_cast<std::int32_t>(texts.front().size());
    const auto chunk = static_cast<std::int32_t>(step_rows / std::ssize(texts));
    for (std::int32_t first = 0; first < end;) {
      const bool is_prompt = first < prompt || !decodes;
      const std::int32_t until =
          std::min({is_prompt ? (decodes ? prompt : end) : end, policy_.next_drop(first, prompt),
                    first + (is_prompt ? chunk : 1)});
      const std::clock_t began = std::clock();
      TROUPE_CHECK(step(texts, first, until));
      const std::clock_t took = std::clock() - began;
      if (!is_prompt) {
        figures.decode_seconds += static_cast<double>(took) / CLOCKS_PER_SEC;
        figures.decoded += std::ssize(texts);
        const auto blocks = std::ssize(table_->at(0).tables.front());
        figures.decode_blocks = std::max<std::int64_t>(figures.decode_blocks, blocks);
      }
      score(texts, first, until, scored_from, figures);
      first = until;
    }
    StepPlan ends;
    for (std::size_t i = 0; i < texts.size(); ++i) {
      ends.released.push_back(static_cast<SequenceId>(i));
    }
    TROUPE_TRY(const CacheMoves none, table_->apply(ends));
    return {};
  }

 private:
  Result<void> step(const std::vector<Tokens>& texts, std::int32_t first, std::int32_t until) {
    StepPlan plan;
    for (std::size_t i = 0; i < texts.size(); ++i) {
      const auto id = static_cast<SequenceId>(i);
      SequenceStep step{
          .id = id, .first_position = first, .tokens = until - first, .new_blocks = {}};
      const std::int32_t entries =
          until - policy_.dropped_before(first, table_->at(id).prompt_tokens);
      const std::int64_t wanted = (entries + block_size - 1) / block_size;
      for (auto block = std::ssize(table_->at(id).tables.front()); block < wanted; ++block) {
        step.new_blocks.push_back(
            static_cast<std::int32_t>(static_cast<std::int64_t>(i) * blocks_each_ + block));
      }
      plan.steps.push_back(std::move(step));
    }
    TROUPE_TRY(const CacheMoves moves, table_->apply(plan));
    TROUPE_CHECK(compactor_->compact(*model_, moves.compactions));
    for (std::size_t i = 0; i < texts.size(); ++i) {
      KnownSequence& sequence = table_->at(static_cast<SequenceId>(i));
      pass_->begin_sequence(sequence.tables, sequence.tables.front().size(),
                            first - sequence.dropped);
      for (std::int32_t position = first; position < until; ++position) {
        pass_->add_row(sequence.tables, texts[i][static_cast<std::size_t>(position)],
                       table_->place_of(sequence, position), true);
      }
      sequence.computed = until;
    }
    TROUPE_TRY(const ForwardBatch batch, pass_->upload());
    TROUPE_CHECK(model_->forward(batch, logits_->rows(0, pass_->head_rows())));
    pass_->clear();
    return {};
  }

  void score(const std::vector<Tokens>& texts, std::int32_t first, std::int32_t until,
             std::int32_t scored_from, Figures& figures) const {
    const auto vocab = static_cast<std::size_t>(model_->config().vocab_size);
    const std::span<const float> logits = logits_->span<float>();
    std::size_t row = 0;
    for (const Tokens& text : texts) {
      for (std::int32_t position = first; position < until; ++position, ++row) {
        const auto next = static_cast<std::size_t>(position) + 1;
        if (next >= text.size() || std::cmp_less(next, scored_from)) continue;
        const auto scores = logits.subspan(row * vocab, vocab);
        const double largest = *std::ranges::max_element(scores);
        double total = 0.0;
        for (const float score : scores) total += std::exp(static_cast<double>(score) - largest);
        const auto token = static_cast<std::size_t>(text[next]);
        figures.nll += largest + std::log(total) - static_cast<double>(scores[token]);
        ++figures.scored;
      }
    }
  }

  KvPolicy policy_;
  std::int64_t blocks_each_ = 0;
  std::unique_ptr<Ops> ops_;
  std::unique_ptr<Model> model_;
  std::optional<Pass> pass_;
  std::optional<KvCompactor> compactor_;
  std::optional<SequenceTable> table_;
  HostTensor logits_;
};

void print(const std::string& what, const Figures& figures, std::size_t bytes_per_block) {
  const double nll = figures.nll / static_cast<double>(figures.scored);
  const double kib =
      static_cast<double>(figures.decode_blocks) * static_cast<double>(bytes_per_block) / 1024.0;
  fmt::print("{:<64} {:8.4f} {:9.3f}", what, nll, std::exp(nll));
  if (figures.decoded > 0) {
    fmt::print(" {:9.0f} {:9.0f}", kib,
               static_cast<double>(figures.decoded) / figures.decode_seconds);
  }
  fmt::print("\n");
  std::fflush(stdout);
}

std::vector<KvPolicy> policies(std::int32_t budget) {
  return {
      {.kind = KvPolicy::Kind::streaming,
       .capacity = budget,
       .first_tokens = 4,
       .drop_tokens = (budget - 4) / 8},
      {.kind = KvPolicy::Kind::streaming, .capacity = budget, .drop_tokens = budget / 8},
      {.kind = KvPolicy::Kind::snapkv, .capacity = budget, .last_tokens = 32, .pooling_tokens = 5},
      {.kind = KvPolicy::Kind::h2o,
       .capacity = budget,
       .last_tokens = budget / 2,
       .drop_tokens = budget / 16}};
}

/// Consecutive pieces of the text, as many batches as are full.
std::vector<std::vector<Tokens>> batches_of(const Tokens& text, std::size_t length) {
  std::vector<std::vector<Tokens>> batches;
  for (std::size_t at = 0; at + together * length <= text.size(); at += together * length) {
    std::vector<Tokens>& batch = batches.emplace_back();
    for (std::size_t i = 0; i < together; ++i) {
      const auto first = text.begin() + static_cast<std::ptrdiff_t>(at + i * length);
      batch.emplace_back(first, first + static_cast<std::ptrdiff_t>(length));
    }
  }
  return batches;
}

Result<void> compare(const std::filesystem::path& folder, const Tokens& text, std::int32_t length,
                     const std::vector<std::int32_t>& budgets, int threads) {
  const auto batches = batches_of(text, static_cast<std::size_t>(length));
  const std::int32_t prompt = length / 2;
  fmt::print("{}: {} sequences of {} tokens after prompts of {}, {} at a time, {} threads\n",
             folder.filename().string(), batches.size() * together, length - prompt, prompt,
             together, threads);
  fmt::print("{:<64} {:>8} {:>9} {:>9} {:>9}\n", "policy", "NLL", "perplex.", "KiB/seq.",
             "tok/CPU s");
  const auto measure = [&](const KvPolicy& policy) -> Result<void> {
    TROUPE_TRY(Reader reader, Reader::create(folder, policy, length, prompt, threads));
    Figures figures;
    for (const auto& batch : batches) {
      TROUPE_CHECK(reader.read(batch, prompt, prompt, true, figures));
    }
    print(describe(policy), figures, reader.bytes_per_block());
    return {};
  };
  TROUPE_CHECK(measure({}));
  for (const std::int32_t budget : budgets) {
    for (const KvPolicy& policy : policies(budget)) TROUPE_CHECK(measure(policy));
  }
  return {};
}

Result<void> run(const std::filesystem::path& folder, int threads) {
  TROUPE_TRY(const auto windows, golden::read_windows());
  Tokens text;
  for (const auto& window : windows) text.insert(text.end(), window.begin(), window.end());
  TROUPE_CHECK(compare(folder, text, 512, {192, 128, 64}, threads));
  TROUPE_CHECK(compare(folder, text, 2048, {768, 512, 256, 128}, threads));
  for (const KvPolicy& policy : {policies(512)[0], policies(512)[1]}) {
    const auto tokens = static_cast<std::int32_t>(text.size());
    TROUPE_TRY(Reader reader, Reader::create(folder, policy, tokens, tokens, threads));
    Figures figures;
    TROUPE_CHECK(reader.read({text}, tokens, 1, false, figures));
    print(fmt::format("{} tokens, {}", tokens, describe(policy)), figures, 0);
  }
  return {};
}

}  // namespace
}  // namespace troupe

int main(int argc, char** argv) {
  const auto folder = argc > 1 ? std::filesystem::path(argv[1])
                               : troupe::golden::golden_model("fable-moe")->checkpoint;
  const auto done = troupe::run(folder, argc > 2 ? std::atoi(argv[2]) : 1);
  if (done.ok()) return 0;
  fmt::print("{}\n", done.error().message);
  return 1;
}
