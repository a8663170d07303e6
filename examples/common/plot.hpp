// examples/common/plot.hpp - small line charts side by side, as SVG.
#pragma once
#include <optional>
#include <string>
#include <vector>

namespace attn::examples {

/// One line of a chart: a value for each place on the horizontal axis, or none.
struct Series {
  std::string label;
  std::vector<std::optional<double>> values;
};

/// One chart; the vertical axis starts at 0.
struct Panel {
  std::string title;
  std::string unit;
  std::vector<Series> series;
};

/// Panels that share a horizontal axis and a legend; series of equal position in their panels share a colour.
struct Plot {
  std::string title;
  std::string x_label;
  std::vector<std::string> x_values;  ///< evenly spaced
  std::vector<Panel> panels;
};

/// The plot as a complete SVG 1.1 document. Values must be finite and not negative.
std::string to_svg(const Plot& plot);

}  // namespace attn::examples
