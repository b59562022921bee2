#pragma once

#include "parallel/collectives/collectives.hpp"

namespace troupe {

/// Errors: invalid_argument unless `part` and `whole` are what Collectives::columns_to_rows takes
/// on this rank of `group`.
Result<void> check_columns_to_rows(const Collectives& group, const Tensor& part,
                                   const Tensor& whole);

/// The communication of Collectives::columns_to_rows by all_to_all. Returns the parts of this
/// rank's rows in `scratch` [size * own rows, w], rank after rank; the caller must put them side by
/// side. Errors: those of all_to_all; invalid_argument.
Result<Tensor> columns_to_parts(Collectives& group, const Tensor& part, const Tensor& whole,
                                const Tensor& scratch);

}  // namespace troupe
