#pragma once

namespace troupe::test {

/// Kills the driver of one job `kills` times, restarts it each time, and finally lets it finish.
/// The moments are random: alternately after a number of new answers, up to a share of `requests`,
/// and after some time, up to `longest_wait_ms`. Expects the output of an undisturbed run: every
/// custom_id once and the same bytes. Prints the seed.
void kill_and_resume(int kills, int requests, int longest_wait_ms);

}  // namespace troupe::test
