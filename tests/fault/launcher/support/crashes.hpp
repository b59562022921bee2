#pragma once

namespace troupe::test {

/// Sends a signal of a crash (SIGSEGV) to processes that begin with `role` three times, each while
/// the same request is under way and the others with it are other ones. Expects that this request
/// alone is answered with an error, that the job finishes by itself with the other answers of an
/// undisturbed run, and that the report has the prompt's hash.
void expect_one_request_to_be_given_up(const char* role);

}  // namespace troupe::test
