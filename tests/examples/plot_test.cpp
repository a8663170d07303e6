#include "common/plot.hpp"

#include <gtest/gtest.h>

#include <regex>

namespace {

using attn::examples::Plot;
using attn::examples::to_svg;

Plot sample() {
  return {"a < b & \"c\"",
          "heads",
          {"1", "2", "4"},
          {{"Time", "ms", {{"rising", {1.0, 2.0, 3.0}}, {"late", {std::nullopt, 4.0, std::nullopt}}}},
           {"Empty", "ms", {}}}};
}

/// Vertical places of the markers of a colour, in drawing order.
std::vector<double> marker_heights(const std::string& svg, const std::string& colour) {
  const std::regex circle("cy=\"([0-9.]+)\" r=\"3.2\" fill=\"" + colour + "\"");
  std::vector<double> heights;
  for (std::sregex_iterator at(svg.begin(), svg.end(), circle), end; at != end; ++at)
    heights.push_back(std::stod((*at)[1]));
  return heights;
}

TEST(Plot, EscapesTextForXml) {
  const std::string svg = to_svg(sample());
  EXPECT_NE(svg.find("a &lt; b &amp; &quot;c&quot;"), std::string::npos);
  EXPECT_EQ(svg.find("a < b"), std::string::npos);
}

TEST(Plot, PutsLargerValuesHigherAndKeepsTheScaleLinear) {
  const auto heights = marker_heights(to_svg(sample()), "#0072B2");
  ASSERT_EQ(heights.size(), 5u);  // three values, and two markers in the legend
  EXPECT_GT(heights[0], heights[1]);
  EXPECT_NEAR(heights[0] - heights[1], heights[1] - heights[2], 1e-2);
}

TEST(Plot, LeavesOutValuesThatDoNotExist) {
  EXPECT_EQ(marker_heights(to_svg(sample()), "#D55E00").size(), 3u);
}

TEST(Plot, NamesEveryAxisPanelAndSeries) {
  const std::string svg = to_svg(sample());
  for (const std::string text : {">Time [ms]<", ">Empty [ms]<", ">heads<", ">rising<", ">late<", ">4<"})
    EXPECT_NE(svg.find(text), std::string::npos) << text;
}

}  // namespace
