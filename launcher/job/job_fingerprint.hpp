#pragma once

#include "launcher/job/job_plan.hpp"
#include "launcher/journal/fingerprint.hpp"
#include "runtime/base/keep_going.hpp"
#include "runtime/base/result.hpp"

namespace troupe {

/// Computes the fingerprint of everything that a plan's answers depend on: the content of the input
/// and of the model's configs, tokenizer and template, sizes and samples of its weights
/// (sampled_mark), dtype, lengths, seed and the order of the answers. An input that can be read
/// only once is "a pipe". The identity is new, of this second. Errors: io; cancelled, while the
/// input is read.
Result<Fingerprint> job_fingerprint(const JobPlan& plan, const KeepGoing& keep_going = nullptr);

}  // namespace troupe
