#pragma once

namespace troupe::test {

/// Kills the driver of one job `kills` times, each at a random moment of at most `longest_wait_ms`
/// after its start, starts it again each time, and lets it finish in the end. Expects of the output
/// what an undisturbed run gives: every custom_id once and the same bytes. Prints the seed.
void kill_and_resume(int kills, int requests, int longest_wait_ms);

}  // namespace troupe::test
