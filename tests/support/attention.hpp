// tests/support/attention.hpp - attention in double by the reference kernel, and comparisons of its results.
#pragma once
#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "attn/kernels/reference.hpp"
#include "attn/ops/sdpa.hpp"

namespace attn_test {

/// Results of the formula in double. Leading axes are always [batch, heads].
struct ReferenceAttention {
  attn::Tensor<double, 4> out;
  attn::Tensor<double, 3> logsumexp;
};

/// Inputs of any type, rank and strides; `mask` and `options` as sdpa takes them.
template <class Q, class K, class V, attn::Mask M = attn::NoMask>
ReferenceAttention reference_attention(const Q& query, const K& key, const V& value, const M& mask = {},
                                       const attn::SdpaOptions& options = {}) {
  using T = attn::ElementOf<Q>;
  const attn::TensorView<const T, 4> q = attn::as_bhld(attn::as_view(query)),
                                     k = attn::as_bhld(attn::as_view(key)),
                                     v = attn::as_bhld(attn::as_view(value));
  const attn::Problem p = attn::detail::sdpa_problem(q, k, v, attn::uses_positions<M>, options);
  ReferenceAttention result{attn::Tensor<double, 4>({p.batch, p.num_heads, p.q_len, p.value_dim}),
                            attn::Tensor<double, 3>({p.batch, p.num_heads, p.q_len})};
  const attn::kernels::ReferenceOptions formula{
      options.scale.value_or(1 / std::sqrt(static_cast<double>(p.head_dim))), options.soft_cap,
      options.sinks};
  std::vector<double> weights(static_cast<std::size_t>(p.kv_len));
  for (attn::Index b = 0; b < p.batch; ++b)
    for (attn::Index h = 0; h < p.num_heads; ++h)
      for (attn::Index i = 0; i < p.q_len; ++i)
        result.logsumexp(b, h, i) = attn::kernels::reference_row<double>(
            q, k, v, result.out.view(), {b, h, static_cast<attn::Position>(i), 0}, p, mask, formula,
            std::span<double>(weights));
  return result;
}

/// Largest absolute element; at least `floor`.
template <class X>
double largest(const X& x, double floor = 0) {
  const auto view = attn::with_rank<4>(attn::as_view(x));
  double largest = floor;
  for (attn::Index a = 0; a < view.extent(0); ++a)
    for (attn::Index b = 0; b < view.extent(1); ++b)
      for (attn::Index c = 0; c < view.extent(2); ++c)
        for (attn::Index d = 0; d < view.extent(3); ++d)
          if (std::isfinite(static_cast<double>(view(a, b, c, d))))
            largest = std::max(largest, std::abs(static_cast<double>(view(a, b, c, d))));
  return largest;
}

/// f(x, y) for each pair of elements of two containers of the same extents, leading axes of 1 apart.
template <class X, class Y, class F>
void for_each_pair(const X& x, const Y& y, F f) {
  const auto a = attn::with_rank<4>(attn::as_view(x));
  const auto b = attn::with_rank<4>(attn::as_view(y));
  attn::check(a.extents() == b.extents(), "compared tensors ", a, " and ", b, " differ in extents");
  for (attn::Index i = 0; i < a.extent(0); ++i)
    for (attn::Index j = 0; j < a.extent(1); ++j)
      for (attn::Index k = 0; k < a.extent(2); ++k)
        for (attn::Index l = 0; l < a.extent(3); ++l) f(a(i, j, k, l), b(i, j, k, l));
}

/// Largest absolute difference, taken in double; infinite where one side is NaN or the infinities differ.
template <class X, class Y>
double distance(const X& x, const Y& y) {
  double worst = 0;
  for_each_pair(x, y, [&](auto a, auto b) {
    const auto left = static_cast<double>(a), right = static_cast<double>(b);
    if (left == right) return;
    const double difference = std::abs(left - right);
    worst = difference < std::numeric_limits<double>::infinity() ? std::max(worst, difference)
                                                                 : std::numeric_limits<double>::infinity();
  });
  return worst;
}

/// Every element has the same bits.
template <class X, class Y>
bool same_bits(const X& x, const Y& y) {
  bool same = true;
  for_each_pair(x, y, [&](auto a, auto b) {
    static_assert(std::is_same_v<decltype(a), decltype(b)>);
    same = same && std::memcmp(&a, &b, sizeof(a)) == 0;
  });
  return same;
}

/// `fill` of the outside reports this project tests against: row-major element i is
/// (((step * i + start) mod 17) - 8) / 8, exact in every type.
template <class T, int Rank>
attn::Tensor<T, Rank> fill(attn::Dims<Rank> extents, attn::Index step, attn::Index start) {
  attn::Tensor<T, Rank> x(extents);
  for (attn::Index i = 0; i < x.size(); ++i)
    x.data()[i] = static_cast<T>(static_cast<double>((step * i + start) % 17 - 8) / 8);
  return x;
}

}  // namespace attn_test
