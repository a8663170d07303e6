// Score changes as a user writes them; tools/packed_code.sh looks at the code that compilers make of them.
#include "attn/core/math.hpp"
#include "attn/masks/score_block.hpp"
#include "attn/masks/score_mod.hpp"

template <class T>
using Block = attn::ScoreBlock<T, 16>;

const auto capped = [](auto s, const attn::Site&) { return 30 * attn::tanh(s / 30); };
const auto exponential = [](auto s, const attn::Site& at) {
  return s - attn::exp(static_cast<decltype(s)>(at.k - at.q) / 8);
};

void packed_tanh_float(const Block<float>& block, const attn::Problem& problem) {
  attn::change_scores(attn::ScoreMod{capped}, block, problem);
}
void packed_tanh_double(const Block<double>& block, const attn::Problem& problem) {
  attn::change_scores(attn::ScoreMod{capped}, block, problem);
}
void packed_exp_float(const Block<float>& block, const attn::Problem& problem) {
  attn::change_scores(attn::ScoreMod{exponential}, block, problem);
}
void packed_exp_double(const Block<double>& block, const attn::Problem& problem) {
  attn::change_scores(attn::ScoreMod{exponential}, block, problem);
}
