#include "launcher/config/schema_rows.hpp"

namespace troupe::schema {

std::vector<KeySpec> precision_rows() {
  using P = C::Precision;
  return {
      row<&C::precision, &P::fallback>(
          {.key = "precision.fallback",
           .type = ValueType::text,
           .default_value = "none",
           .doc = "whether layers with large activations stop rounding them to 8 bits: none, w8a16",
           .reference =
               "What becomes of a layer whose activations are larger than "
               "`precision.max_activation`, or not finite, where its products round them to 8 bits "
               "(`model.quantization`: `fp8` on GPUs, `w8a8`). `none`: nothing. `w8a16`: "
               "from one of the next steps on, the same for all ranks of a replica, its products "
               "leave activations as they are (bfloat16 on GPUs, fp32 on CPUs) and widen the 8-bit "
               "weights in registers. That is more exact and, with many rows, slower; no second "
               "copy of the weights is needed, and nothing is started anew. A layer does not go "
               "back. The log and the report tell which layers it was, and a metric how many. "
               "Which step it is depends on timing, so that another run may give other answers: "
               "not for "
               "`engine.deterministic`. See [operations](operations.md#layers-that-fall-back).",
           .choices = {"none", "w8a16"}}),
      row<&C::precision, &P::max_activation>(
          {.key = "precision.max_activation",
           .type = ValueType::number,
           .default_value = "448",
           .doc = "the largest magnitude of an activation that a layer may round to 8 bits",
           .reference = "Of `w8a16`: the largest magnitude of an activation that a layer may round "
                        "to 8 bits. Each row has a scale of its own, so none overflows; but the "
                        "larger one number of a row, the coarser its others.",
           .minimum = 1e-6,
           .maximum = 1e30,
           .effective_with = {"precision.fallback", {"w8a16"}}}),
  };
}

}  // namespace troupe::schema
