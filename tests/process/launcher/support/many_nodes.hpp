#pragma once

namespace troupe::launcher_test {

/// Runs a job over so many agents that join on this machine, with a replica of an almost empty
/// model on each, and expects answers from all, the same as from one replica.
void expect_all_nodes_to_answer(int nodes);

}  // namespace troupe::launcher_test
