#include "common/plot.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <sstream>

namespace attn::examples {
namespace {

constexpr double panel_width = 300, panel_height = 240, left = 62, gap = 78, top = 78, below = 100;
// Okabe and Ito's palette: told apart by readers who do not see all colours.
constexpr std::array<const char*, 7> colours{"#0072B2", "#D55E00", "#009E73", "#CC79A7",
                                             "#E69F00", "#56B4E9", "#000000"};

std::string escape(const std::string& text) {
  std::string out;
  for (const char c : text) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&quot;";
        break;
      default:
        out += c;
    }
  }
  return out;
}

/// A number of the form 1, 2 or 5 times a power of ten, at least `x`.
double round_up(double x) {
  const double power = std::pow(10.0, std::floor(std::log10(x)));
  for (const double step : {1.0, 2.0, 5.0})
    if (step * power >= x * (1 - 1e-9)) return step * power;
  return 10 * power;
}

double largest(const Panel& panel) {
  double max = 0;
  for (const Series& series : panel.series)
    for (const auto& value : series.values) max = std::max(max, value.value_or(0));
  return max;
}

/// The elements of one SVG document, as text.
class Svg {
 public:
  Svg(double width, double height) {
    out_ << R"(<svg xmlns="http://www.w3.org/2000/svg" version="1.1" font-family="sans-serif" font-size="12")"
         << attribute("width", width) << attribute("height", height) << ">\n"
         << R"(<rect width="100%" height="100%" fill="white"/>)"
         << "\n";
  }
  void line(double x1, double y1, double x2, double y2, const char* colour) {
    out_ << "<line" << attribute("x1", x1) << attribute("y1", y1) << attribute("x2", x2)
         << attribute("y2", y2) << attribute("stroke", colour) << "/>\n";
  }
  void text(double x, double y, const char* anchor, const std::string& words, int size = 12,
            const char* weight = "normal") {
    out_ << "<text" << attribute("x", x) << attribute("y", y) << attribute("text-anchor", anchor)
         << attribute("font-size", size) << attribute("font-weight", weight) << ">" << escape(words)
         << "</text>\n";
  }
  void polyline(const std::vector<std::array<double, 2>>& points, const char* colour) {
    std::ostringstream places;
    for (const auto& [x, y] : points) places << x << "," << y << " ";
    out_ << "<polyline" << attribute("fill", "none") << attribute("stroke-width", 1.8)
         << attribute("stroke", colour) << attribute("points", places.str()) << "/>\n";
    for (const auto& [x, y] : points)
      out_ << "<circle" << attribute("cx", x) << attribute("cy", y) << attribute("r", 3.2)
           << attribute("fill", colour) << "/>\n";
  }
  std::string finish() {
    out_ << "</svg>\n";
    return out_.str();
  }

 private:
  template <class Value>
  static std::string attribute(const char* name, const Value& value) {
    std::ostringstream text;
    text << ' ' << name << "=\"" << value << '"';
    return text.str();
  }

  std::ostringstream out_;
};

/// Draws one panel whose plotting area has its upper left corner at (x0, top).
class PanelPainter {
 public:
  PanelPainter(Svg& svg, const Plot& plot, const Panel& panel, double x0)
      : svg_(svg), plot_(plot), panel_(panel), x0_(x0) {
    const double max = largest(panel);
    step_ = max > 0 ? round_up(max / 5) : 1;
    max_ = step_ * std::max(1.0, std::ceil(max / step_ * 1.02));
  }

  void paint() {
    paint_axes();
    for (std::size_t s = 0; s < panel_.series.size(); ++s) {
      std::vector<std::array<double, 2>> points;
      const auto& values = panel_.series[s].values;
      for (std::size_t i = 0; i < values.size(); ++i)
        if (values[i]) points.push_back({x(i), y(*values[i])});
      svg_.polyline(points, colours[s % colours.size()]);
    }
  }

 private:
  double x(std::size_t i) const {
    return x0_ + panel_width * (static_cast<double>(i) + 0.5) / static_cast<double>(plot_.x_values.size());
  }
  double y(double value) const { return top + panel_height * (1 - value / max_); }

  void paint_axes() {
    const double bottom = top + panel_height;
    svg_.text(x0_ + panel_width / 2, top - 14, "middle", panel_.title + " [" + panel_.unit + "]", 12, "bold");
    for (int tick = 0; tick * step_ <= max_ * (1 + 1e-9); ++tick) {
      const double at = y(tick * step_);
      svg_.line(x0_, at, x0_ + panel_width, at, tick == 0 ? "#333333" : "#dddddd");
      std::ostringstream label;
      label << tick * step_;
      svg_.text(x0_ - 8, at + 4, "end", label.str());
    }
    svg_.line(x0_, top, x0_, bottom, "#333333");
    for (std::size_t i = 0; i < plot_.x_values.size(); ++i)
      svg_.text(x(i), bottom + 18, "middle", plot_.x_values[i]);
    svg_.text(x0_ + panel_width / 2, bottom + 38, "middle", plot_.x_label);
  }

  Svg& svg_;
  const Plot& plot_;
  const Panel& panel_;
  double x0_, step_ = 1, max_ = 1;
};

void paint_legend(Svg& svg, const Panel& panel, double y) {
  double x = left;
  for (std::size_t s = 0; s < panel.series.size(); ++s) {
    svg.polyline({{x, y}, {x + 22, y}}, colours[s % colours.size()]);
    svg.text(x + 30, y + 4, "start", panel.series[s].label);
    x += 54 + 6.8 * static_cast<double>(panel.series[s].label.size());
  }
}

}  // namespace

std::string to_svg(const Plot& plot) {
  const auto count = static_cast<double>(plot.panels.size());
  Svg svg(left + count * (panel_width + gap) - gap + 24, top + panel_height + below);
  svg.text(left, 28, "start", plot.title, 16, "bold");
  double x0 = left;
  for (const Panel& panel : plot.panels) {
    PanelPainter(svg, plot, panel, x0).paint();
    x0 += panel_width + gap;
  }
  if (!plot.panels.empty()) paint_legend(svg, plot.panels.front(), top + panel_height + below - 28);
  return svg.finish();
}

}  // namespace attn::examples
