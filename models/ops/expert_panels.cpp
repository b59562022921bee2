#include "models/ops/expert_panels.hpp"

#include <string>

#include <fmt/format.h>

#include "models/ops/coded_matrix.hpp"

namespace troupe {

PanelChoice expert_panels(std::span<const StoredMatrix> experts, WeightEncoding encoding) {
  const FormChoice all = coded_form(experts, encoding);
  if (!all.form) return {.obstacle = std::string(all.obstacle)};
  PanelChoice choice = coded_panels(experts.front(), encoding);
  if (!choice.panels) return choice;
  CodedPanels& panels = *choice.panels;
  if (!is_packed(panels.kind)) {
    return {.obstacle = fmt::format("as GPUs multiply experts of 4-bit codes, not {}",
                                    name_of(panels.kind))};
  }
  if (panels.panels() % 2 != 0) return {.obstacle = "its gates are not in multiples of 8"};
  if (std::ssize(experts) > max_coded_experts) {
    return {.obstacle = fmt::format("as there are more than {} experts", max_coded_experts)};
  }
  if (panels.group_columns == 0) panels.group_columns = static_cast<std::int32_t>(unit_columns);
  panels.scale_dtype = DType::bf16;
  return choice;
}

}  // namespace troupe
