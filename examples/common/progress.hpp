// examples/common/progress.hpp - a progress bar on standard error, for work that turns out to be long.
#pragma once
#include <chrono>
#include <string>

#include "attn/core/types.hpp"

namespace attn::examples {

/// Shows nothing unless standard error is a terminal and the work has taken half a second; then one line that
/// is redrawn at most ten times a second and erased by the destructor.
class Progress {
 public:
  /// `total` steps of work, called `label` beside the bar.
  Progress(std::string label, Index total);
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;
  ~Progress();

  /// `done` of the steps are finished.
  void update(Index done);

 private:
  using Clock = std::chrono::steady_clock;
  std::string label_;
  Index total_;
  bool enabled_;
  bool drawn_ = false;
  Clock::time_point next_;
};

}  // namespace attn::examples
