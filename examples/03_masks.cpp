// Masks: the library's, a mask of your own, and both together.
#include <Eigen/Core>
#include <algorithm>
#include <cstdio>
#include <span>
#include <vector>

#include "attn/attn.hpp"

namespace {

/// Several documents packed into one sequence: a token sees its own document only.
struct SameDocument {
  std::span<const int> document;  // of each token

  bool allows(const attn::Site& site, const attn::Problem&) const {
    return document[static_cast<std::size_t>(site.q)] == document[static_cast<std::size_t>(site.k)];
  }
};

/// Prefers near keys, and far ones equally little: a score change instead of a filter, in one lambda.
const attn::ScoreMod nearby{[](auto score, const attn::Site& site) {
  const auto distance = static_cast<decltype(score)>(site.q > site.k ? site.q - site.k : site.k - site.q);
  return score - 2 * attn::tanh(distance / 4);  // unlike std::tanh, it vectorises
}};

void print(const char* title, const attn::Matrix<float>& weights) {
  std::printf("%s\n", title);
  for (Eigen::Index q = 0; q < weights.rows(); ++q) {
    for (Eigen::Index k = 0; k < weights.cols(); ++k)
      std::printf(" %.2f", static_cast<double>(weights(q, k)));
    std::printf("\n");
  }
}

}  // namespace

int main() {
  const Eigen::MatrixXf x = Eigen::MatrixXf::Random(8, 16);
  print("causal", attn::sdpa_with_weights(x, x, x, attn::Causal{}).weights);
  print("nearby", attn::sdpa_with_weights(x, x, x, nearby).weights);
  const std::vector<int> documents{0, 0, 0, 1, 1, 2, 2, 2};
  const auto mask = attn::Causal{} & SameDocument{documents} & nearby;
  const auto packed = attn::sdpa_with_weights(x, x, x, mask);
  print("causal, within a document, nearby", packed.weights);

  // Attention over the packed sequence is attention over each document by itself.
  float difference = 0;
  for (const attn::Range document : {attn::Range{0, 3}, attn::Range{3, 5}, attn::Range{5, 8}}) {
    const Eigen::MatrixXf part = x.middleRows(document.begin, document.size());
    const auto alone = attn::sdpa(part, part, part, attn::Causal{} & nearby);
    difference = std::max(
        difference, (packed.out.middleRows(document.begin, document.size()) - alone).cwiseAbs().maxCoeff());
  }
  std::printf("largest difference to each document alone: %.1e\n", static_cast<double>(difference));
  return difference < 1e-6F ? 0 : 1;
}
