#include "actors/worker/drafter.hpp"

#include <utility>

#include "models/layers/cache_spec.hpp"

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
  TROUPE_TRY(const ModelConfig config, ModelConfig::load(folder));
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
  TROUPE_TRY(logits_, ops_->allocate(DType::f32, shape));
  host_logits_ = HostTensor(DType::f32, shape);
  return {};
}

Result<void> Drafter::follow(const ForwardBatch& batch) {
  ForwardBatch same = batch;
  same.attention = batch.attention.first(1);
  same.head_rows = {};
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

/// A token for each task that has got one in every round so far; false if there was none.
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
      break;  // the rest goes without a guess
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
  const Tensor host = host_logits_.view().rows(0, count);
  ops_->download(logits, host);
  TROUPE_CHECK(ops_->synchronize());
  for (std::int64_t row = 0; row < count; ++row) {
    Task& task = *rows[static_cast<std::size_t>(row)];
    const auto generated = task.tokens.subspan(task.prompt_tokens);
    output_.assign(generated.begin(), generated.end());
    output_.insert(output_.end(), task.drafts.begin(), task.drafts.end());
    const SampledToken guess = sample(host.rows(row, 1).span<float>(), *task.sampling,
                                      {task.tokens.first(task.prompt_tokens), output_}, scratch_);
    if (!guess.failed) task.drafts.push_back(guess.id);
  }
  return true;
}

}  // namespace troupe
