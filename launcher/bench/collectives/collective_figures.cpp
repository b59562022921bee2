#include "launcher/bench/collectives/collective_figures.hpp"

#include <algorithm>

#include <fmt/format.h>

namespace troupe {
namespace {

double bus_bytes_per_second(const CollectiveFigure& figure, int ranks, double seconds) {
  return ring_share(figure.call, ranks) * static_cast<double>(figure.bytes) / seconds;
}

}  // namespace

double ring_share(const std::string& call, int ranks) {
  if (call == "message") return 1;
  const double share = static_cast<double>(ranks - 1) / ranks;
  return call == "sum" ? 2 * share : share;
}

std::string to_table(const CollectivesFigures& figures) {
  std::string text =
      fmt::format("{}, {}\nceiling: {}: {:.1f} GB/s\n", figures.device, figures.dtype,
                  figures.ceiling, figures.ceiling_bytes_per_second * 1e-9);
  for (const GroupFigures& group : figures.groups) {
    const bool library = std::ranges::any_of(
        group.calls, [](const CollectiveFigure& call) { return call.library_seconds > 0; });
    text += fmt::format("\n{} of {} ranks\n{:<9} {:>9} {:>11} {:>9} {:>5}{}\n", group.group,
                        group.ranks, "call", "bytes", "us", "bus GB/s", "%",
                        library ? fmt::format(" {:>11} {:>9}", "NCCL us", "bus GB/s") : "");
    for (const CollectiveFigure& call : group.calls) {
      const double bus = bus_bytes_per_second(call, group.ranks, call.seconds);
      text +=
          fmt::format("{:<9} {:>9} {:>11.1f} {:>9.2f} {:>5.0f}", call.call, call.bytes,
                      1e6 * call.seconds, 1e-9 * bus, 100 * bus / figures.ceiling_bytes_per_second);
      if (call.library_seconds > 0) {
        text += fmt::format(" {:>11.1f} {:>9.2f}", 1e6 * call.library_seconds,
                            1e-9 * bus_bytes_per_second(call, group.ranks, call.library_seconds));
      }
      text += "\n";
    }
  }
  return text;
}

nlohmann::ordered_json to_json(const CollectivesFigures& figures) {
  nlohmann::ordered_json json{
      {"bench", "collectives"},
      {"device", figures.device},
      {"dtype", figures.dtype},
      {"ceiling",
       {{"of", figures.ceiling}, {"bytes_per_second", figures.ceiling_bytes_per_second}}},
      {"groups", nlohmann::ordered_json::array()}};
  for (const GroupFigures& group : figures.groups) {
    nlohmann::ordered_json calls = nlohmann::ordered_json::array();
    for (const CollectiveFigure& call : group.calls) {
      calls.push_back(
          {{"call", call.call},
           {"bytes", call.bytes},
           {"seconds", call.seconds},
           {"bus_bytes_per_second", bus_bytes_per_second(call, group.ranks, call.seconds)}});
      if (call.library_seconds > 0) calls.back()["nccl_seconds"] = call.library_seconds;
    }
    json["groups"].push_back({{"group", group.group}, {"ranks", group.ranks}, {"calls", calls}});
  }
  return json;
}

}  // namespace troupe
