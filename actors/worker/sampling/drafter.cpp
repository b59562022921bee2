#include "actors/worker/sampling/drafter.hpp"

#include <algorithm>
#include <utility>

#include "models/families/family.hpp"
#include "models/layers/attention/cache_spec.hpp"

namespace troupe {

Result<void> check_draft_model(const std::string& folder, const ModelConfig& draft,
                               const ModelConfig& target, std::int64_t max_positions) {
  if (draft.vocab_size != target.vocab_size) {
    return fail(ErrorCode::unsupported, "draft model {} has {} tokens, the model has {}", folder,
                draft.vocab_size, target.vocab_size);
  }
  if (draft.max_position_embeddings < max_positions) {
    return fail(ErrorCode::unsupported, "draft model {} was made for {} tokens, not for {}", folder,
                draft.max_position_embeddings, max_positions);
  }
  const auto groups = cache_groups(draft);
  if (groups.size() > 1 || groups[0].window != 0 || cache_groups(target)[0].window != 0) {
    return fail(ErrorCode::unsupported,
                "draft model {}: its layers, and the model's first, must see all positions",
                folder);
  }
  return {};
}

Result<Drafter> Drafter::create(const std::string& folder, LoadFormat format,
                                const ModelConfig& target, const ModelLimits& limits, Ops& ops) {
  TROUPE_TRY(const ModelConfig config, load_model_config(folder));
  TROUPE_CHECK(check_draft_model(folder, config, target, limits.max_positions));
  TROUPE_TRY(const Checkpoint checkpoint, Checkpoint::open(folder, format, config.dtype));
  TROUPE_TRY(auto model, load_model(config, checkpoint, ops, ParallelContext{}, limits));
  return Drafter(std::move(model), ops);
}

Result<void> Drafter::allocate_kv_cache(std::int64_t blocks) {
  TROUPE_CHECK(model_->allocate_kv_cache(blocks));
  TROUPE_TRY(Pass pass, Pass::create(*ops_, model_->limits(), blocks, 1));
  pass_.push_back(std::move(pass));
  const Shape shape{model_->limits().max_head_rows, model_->config().vocab_size};
  TROUPE_TRY(logits_, ops_->memory().allocate(DType::f32, shape));
  TROUPE_TRY(RowSampler sampler, RowSampler::create(*ops_, {}, shape[0], shape[1]));
  sampler_.push_back(std::move(sampler));
  return {};
}

Result<void> Drafter::follow(const ForwardBatch& batch) {
  ForwardBatch same = batch;
  same.attention = batch.attention.first(1);
  same.head_rows = {};
  same.head_attention = {};
  return model_->forward(same, {});
}

Result<void> Drafter::propose(std::span<Task> tasks, std::int32_t most) {
  for (std::size_t so_far = 0; so_far < static_cast<std::size_t>(most); ++so_far) {
    TROUPE_TRY(const bool any, propose_one_more(tasks, so_far));
    if (!any) break;
  }
  return {};
}

bool Drafter::has_room_for_next(const Task& task) const {
  const std::size_t position = task.tokens.size() - 1 + task.drafts.size();
  const auto block_size = static_cast<std::size_t>(model_->limits().block_size);
  return position / block_size < task.tables->front().size() &&
         position < static_cast<std::size_t>(model_->limits().max_positions);
}

/// Proposes a token for each task that got one in every earlier round; false if there was none.
Result<bool> Drafter::propose_one_more(std::span<Task> tasks, std::size_t so_far) {
  Pass& pass = pass_.front();
  pass.clear();
  std::vector<Task*> rows;
  for (Task& task : tasks) {
    if (task.drafts.size() != so_far || !has_room_for_next(task)) continue;
    const auto position = static_cast<std::int32_t>(task.tokens.size() - 1 + so_far);
    const std::size_t blocks = static_cast<std::size_t>(position / model_->limits().block_size) + 1;
    if (!pass.has_room_for_row() || !pass.has_room_for_head() ||
        !pass.has_room_for_tables(blocks)) {
      break;  // the rest gets no guess
    }
    pass.begin_sequence(*task.tables, blocks, position);
    pass.add_row(*task.tables, so_far == 0 ? task.tokens.back() : task.drafts.back(), position,
                 true);
    rows.push_back(&task);
  }
  if (rows.empty()) return false;
  const auto count = static_cast<std::int64_t>(rows.size());
  const Tensor logits = logits_.view().rows(0, count);
  TROUPE_TRY(const ForwardBatch batch, pass.upload());
  TROUPE_CHECK(model_->forward(batch, logits));
  std::vector<LogitsRow> wanted;
  outputs_.resize(std::max(outputs_.size(), rows.size()));
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const Task& task = *rows[i];
    const auto generated = task.tokens.subspan(task.prompt_tokens);
    outputs_[i].assign(generated.begin(), generated.end());
    outputs_[i].insert(outputs_[i].end(), task.drafts.begin(), task.drafts.end());
    wanted.push_back({.sampling = task.sampling,
                      .position = static_cast<std::int32_t>(task.tokens.size() - 1 + so_far),
                      .sample = true,
                      .scores = false,
                      .scored = -1,
                      .history = {task.tokens.first(task.prompt_tokens), outputs_[i]}});
  }
  RowSampler& sampler = sampler_.front();
  TROUPE_CHECK(sampler.begin(logits, wanted, logits[0]));
  TROUPE_TRY(const std::vector<RowChoice> guesses, sampler.finish());
  for (std::size_t i = 0; i < rows.size(); ++i) {
    if (!guesses[i].failed) rows[i]->drafts.push_back(guesses[i].id);
  }
  return true;
}

}  // namespace troupe
