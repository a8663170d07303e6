#include "common/progress.hpp"

#include <unistd.h>

#include <cstdio>
#include <utility>

namespace attn::examples {

Progress::Progress(std::string label, Index total)
    : label_(std::move(label)),
      total_(total),
      enabled_(total > 0 && isatty(STDERR_FILENO) == 1),
      next_(Clock::now() + std::chrono::milliseconds(500)) {}

Progress::~Progress() {
  if (drawn_) std::fputs("\r\033[K", stderr);
}

void Progress::update(Index done) {
  if (!enabled_ || Clock::now() < next_) return;
  constexpr Index width = 30;
  const auto filled = static_cast<std::size_t>(width * done / total_);
  const std::string bar =
      std::string(filled, '#') + std::string(static_cast<std::size_t>(width) - filled, '.');
  std::fprintf(stderr, "\r%s [%s] %lld/%lld", label_.c_str(), bar.c_str(), static_cast<long long>(done),
               static_cast<long long>(total_));
  std::fflush(stderr);
  drawn_ = true;
  next_ = Clock::now() + std::chrono::milliseconds(100);
}

}  // namespace attn::examples
