#pragma once

#include <string>
#include <vector>

namespace troupe {

/// Curves over a few named places, as an SVG element for a page: its classes (title, grid,
/// label, s0, s1, ...) are coloured by the page's style. Every point is a circle whose <title>
/// tells place, curve and value.
struct LineChart {
  struct Curve {
    std::string name;
    std::vector<double> values;  ///< at each place; one that is not finite is left out
  };
  std::string title;
  std::string unit;
  std::string across;               ///< what the places are
  std::vector<std::string> places;  ///< from left to right
  std::vector<Curve> curves;        ///< at most 4

  /// The vertical scale begins at 0; where all values are positive and the largest is more than 30
  /// times the smallest, it is logarithmic instead.
  std::string svg() const;
};

/// Values for lines across a chart up to at least `most` (> 0), evenly spaced from 0, by 1, 2 or 5
/// times a power of ten: four to six of them.
std::vector<double> even_ticks(double most);

}  // namespace troupe
