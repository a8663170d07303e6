#include "common/table.hpp"

#include <utf8proc.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <ostream>
#include <utility>

#include "attn/core/error.hpp"
#include "common/utf8.hpp"

namespace attn::examples {
namespace {

/// Columns that UTF-8 text takes on a terminal; a byte that is none takes one.
std::size_t width(std::string_view text) {
  std::size_t columns = 0;
  while (!text.empty()) {
    const auto [c, size] = first_character(text);
    columns += size > 0 ? static_cast<std::size_t>(utf8proc_charwidth(c)) : 1;
    text.remove_prefix(std::max<std::size_t>(size, 1));
  }
  return columns;
}

}  // namespace

Table::Table(std::vector<Column> columns) : columns_(std::move(columns)) {}

void Table::add_row(std::vector<std::string> cells) {
  check<std::invalid_argument>(cells.size() == columns_.size(), "Table::add_row: ", cells.size(),
                               " cells for ", columns_.size(), " columns");
  rows_.push_back(std::move(cells));
}

void Table::print(std::ostream& out) const {
  std::vector<std::size_t> widths;
  for (std::size_t i = 0; i < columns_.size(); ++i) {
    widths.push_back(width(columns_[i].title));
    for (const auto& row : rows_) widths[i] = std::max(widths[i], width(row[i]));
  }
  const auto print_row = [&](const auto& cell) {
    for (std::size_t i = 0; i < columns_.size(); ++i) {
      const std::string& text = cell(i);
      const std::string padding(widths[i] - width(text), ' ');
      const bool last = i + 1 == columns_.size();
      if (columns_[i].align == Align::right)
        out << padding << text;
      else
        out << text << (last ? "" : padding);
      out << (last ? "\n" : "  ");
    }
  };
  print_row([&](std::size_t i) -> const std::string& { return columns_[i].title; });
  for (const auto& row : rows_) print_row([&](std::size_t i) -> const std::string& { return row[i]; });
}

std::string fixed(double value, int decimals) {
  std::array<char, 64> text{};
  std::snprintf(text.data(), text.size(), "%.*f", decimals, value);
  return text.data();
}

std::string grouped(long long value) {
  std::string text = std::to_string(value);
  const std::size_t first_digit = value < 0 ? 1 : 0;
  for (std::size_t at = text.size(); at > first_digit + 3;) text.insert(at -= 3, 1, ',');
  return text;
}

}  // namespace attn::examples
