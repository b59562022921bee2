#pragma once

#include <chrono>
#include <string>
#include <string_view>
#include <vector>

namespace troupe {

/// What NVIDIA's driver has written about a GPU to the kernel's log: "Xid 79: GPU has fallen off
/// the bus". Errors of its memory (ECC) are Xids too: 48, 63, 64, 94 and 95.
struct XidEvent {
  std::chrono::microseconds at{};  ///< since the machine's start
  std::string text;
};

/// The events in `log`, records of /dev/kmsg, about the GPU at this PCI address (0000:19:00.0; the
/// function does not count).
std::vector<XidEvent> xid_events_in(std::string_view log, std::string_view pci_address);

/// The last events of a GPU since `since` in the kernel's log, "Xid N: ...; Xid M: ...", three at
/// most; empty if there are none, or if this user may not read the log. Does not wait.
std::string latest_xid_events(std::string_view pci_address,
                              std::chrono::steady_clock::time_point since);

}  // namespace troupe
