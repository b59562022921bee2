#pragma once

namespace troupe::test {

/// Kills the driver of one job `kills` times, starts it again each time, and lets it finish in the
/// end. The moments are random: in turns so many new answers after the start, up to a share of
/// `requests`, and so much time, up to `longest_wait_ms`. Expects of the output what an undisturbed
/// run gives: every custom_id once and the same bytes. Prints the seed.
void kill_and_resume(int kills, int requests, int longest_wait_ms);

}  // namespace troupe::test
