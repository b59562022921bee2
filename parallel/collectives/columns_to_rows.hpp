#pragma once

#include "parallel/collectives/collectives.hpp"

namespace troupe {

/// Errors: invalid_argument where `part` and `whole` are not what Collectives::columns_to_rows
/// takes on this rank of `group`.
Result<void> check_columns_to_rows(const Collectives& group, const Tensor& part,
                                   const Tensor& whole);

/// What is left to do of Collectives::columns_to_rows by all_to_all: of this rank's rows the parts,
/// in `scratch` [size * own rows, w], rank after rank, which belong side by side. Errors: those of
/// all_to_all; invalid_argument.
Result<Tensor> columns_to_parts(Collectives& group, const Tensor& part, const Tensor& whole,
                                const Tensor& scratch);

}  // namespace troupe
