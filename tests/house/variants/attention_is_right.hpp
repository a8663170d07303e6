// tests/house/variants/attention_is_right.hpp - a few calls against the formula, for programs that are
// built in unusual ways.
#pragma once
#include <cmath>
#include <vector>

#include "attn/attn.hpp"
#include "attn/core/thread_pool.hpp"

namespace attn_test {

template <class T>
attn::Matrix<T> random_matrix(attn::Index rows, attn::Index columns, std::uint64_t seed) {
  const attn::CounterRandom random(seed);
  attn::Matrix<T> x(rows, columns);
  for (attn::Index i = 0; i < x.size(); ++i)
    x.data()[i] = static_cast<T>(random.normal(static_cast<std::uint64_t>(i)));
  return x;
}

/// Row `i` of causal attention with a bias of tanh(distance / 8), in double; 0 where no key is seen.
template <class T>
std::vector<double> formula(const attn::Matrix<T>& q, const attn::Matrix<T>& k, const attn::Matrix<T>& v,
                            attn::Index offset, attn::Index i) {
  std::vector<double> row(attn::as_size(v.cols()));
  double sum = 0;
  for (attn::Index j = 0; j <= i + offset && j < k.rows(); ++j) {
    double score = std::tanh(static_cast<double>(j - i) / 8);
    for (attn::Index d = 0; d < q.cols(); ++d)
      score += static_cast<double>(q(i, d)) * static_cast<double>(k(j, d)) /
               std::sqrt(static_cast<double>(q.cols()));
    const double weight = std::exp(score);
    sum += weight;
    for (attn::Index d = 0; d < v.cols(); ++d) row[attn::as_size(d)] += weight * static_cast<double>(v(j, d));
  }
  for (double& value : row) value = sum > 0 ? value / sum : 0;
  return row;
}

/// Rounding of sums over some 70 keys is far below the tolerance, which is relative to values of order 1.
template <class T>
bool attention_is_right(double tolerance) {
  const auto q = random_matrix<T>(70, 24, 1), k = random_matrix<T>(75, 24, 2),
             v = random_matrix<T>(75, 10, 3);
  const attn::ScoreMod nearer{[](auto score, const attn::Site& at) {
    return score + attn::tanh(static_cast<decltype(score)>(at.k - at.q) / 8);
  }};
  attn::ThreadPool pool(2);
  for (const attn::Index offset : {attn::Index{0}, attn::Index{5}, attn::Index{-3}}) {
    const auto out = attn::sdpa(q, k, v, attn::Causal{} & nearer, {.query_offset = offset, .executor = pool});
    for (attn::Index i = 0; i < q.rows(); ++i) {
      const std::vector<double> row = formula(q, k, v, offset, i);
      for (attn::Index d = 0; d < v.cols(); ++d)
        if (!(std::abs(static_cast<double>(out(i, d)) - row[attn::as_size(d)]) < tolerance)) return false;
    }
  }
  return true;
}

inline bool attention_is_right() {
  return attention_is_right<float>(1e-5) && attention_is_right<double>(1e-13);
}

}  // namespace attn_test
