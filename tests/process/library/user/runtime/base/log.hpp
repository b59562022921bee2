#pragma once

/// A header of the user's own under a name that a header of Troupe's has in its source tree.
inline constexpr int own_log = 42;
