// examples/common/table.hpp - a plain-text table with aligned columns.
#pragma once
#include <iosfwd>
#include <string>
#include <string_view>
#include <vector>

namespace attn::examples {

enum class Align { left, right };

struct Column {
  std::string title;
  Align align = Align::right;
};

/// Collects rows, then prints them under their titles, each column as wide as its widest cell.
class Table {
 public:
  explicit Table(std::vector<Column> columns);

  /// @throws std::invalid_argument unless there is one cell per column.
  void add_row(std::vector<std::string> cells);

  void print(std::ostream& out) const;

 private:
  std::vector<Column> columns_;
  std::vector<std::vector<std::string>> rows_;
};

/// `value` with a fixed number of decimals.
std::string fixed(double value, int decimals);

/// `value` with commas between groups of three digits: 1,048,576.
std::string grouped(long long value);

}  // namespace attn::examples
