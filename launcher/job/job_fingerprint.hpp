#pragma once

#include "launcher/job/job_plan.hpp"
#include "launcher/journal/fingerprint.hpp"
#include "runtime/base/keep_going.hpp"
#include "runtime/base/result.hpp"

namespace troupe {

/// What the answers of a plan's job depend on: the content of the input and of the model's configs,
/// tokenizer and template, its tensors' names, shapes and sizes, dtype, lengths, seed, and the form
/// of the answers. The weights themselves are not read: a checkpoint of the same shapes with other
/// values is taken for the same. An input that can be read only once is "a pipe". The identity is a
/// new one, of this second. Errors: io; cancelled, while the input is read.
Result<Fingerprint> job_fingerprint(const JobPlan& plan, const KeepGoing& keep_going = nullptr);

}  // namespace troupe
