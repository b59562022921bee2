#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace troupe {

/// How a device holds the elements of a matrix.
enum class WeightEncoding : std::uint8_t {
  plain,  ///< as they are stored: numbers of the Ops' dtype, or codes if the device multiplies them
  fp8,   ///< as 8-bit codes, each row with a scale (fp8_rows.hpp), if the device and shape allow it
  int8,  ///< on CPUs: as signed bytes, each row with a scale
  int4,  ///< on CPUs: as 4-bit codes, each 128 columns of a row with a scale
  w8a8,  ///< as int8, and products round activations to int8, each row with a scale
  plain_w8a8,  ///< as they are stored; products with codes that are int8 round activations too
};

/// A weight matrix [n, k] in the layout its device multiplies fastest. Opaque: made by
/// WeightOps, used by DenseOps of the same Ops.
class Linear {
 public:
  virtual ~Linear() = default;
  virtual std::int64_t out_features() const = 0;  ///< n
  virtual std::int64_t in_features() const = 0;   ///< k
  virtual std::size_t bytes() const = 0;          ///< device memory held
  /// What it is multiplied as, for logs and reports: "int8 codes, activations as int8 (W8A8)";
  /// empty if the device does not say.
  virtual std::string kernel() const { return {}; }
  /// True if products round activations to 8 bits, until WeightOps::widen.
  virtual bool rounds_rows() const { return false; }
};

/// Like Linear, with one matrix [n, k] per local expert.
class GroupedLinear {
 public:
  virtual ~GroupedLinear() = default;
  virtual std::int64_t experts() const = 0;
  virtual std::int64_t out_features() const = 0;
  virtual std::int64_t in_features() const = 0;
  virtual std::size_t bytes() const = 0;
  virtual std::string kernel() const { return {}; }  ///< as Linear's
  virtual bool rounds_rows() const { return false; }
};

}  // namespace troupe
