// attn as one program of a comparison; the protocol and the inputs are those of support/peer.hpp.
#include "attn/modules/multi_head_attention.hpp"

#include <cmath>
#include <utility>

#include "attn/core/thread_pool.hpp"
#include "support/attention.hpp"
#include "support/peer.hpp"

namespace {

using attn::Index;
using attn::Tensor;
using bench::normal_tensor;
using bench::NumpyNormal;
using bench::Unsupported;
using bench::Workload;

template <attn::Element T>
class SdpaJob final : public bench::Job {
 public:
  explicit SdpaJob(const Workload& w)
      : causal_(w.causal),
        padding_(w.mask == "padding"),
        lengths_(w.lengths),
        attention_({.batch = w.batch,
                    .num_heads = w.num_heads,
                    .num_kv_heads = w.num_kv_heads,
                    .q_len = w.q_len,
                    .kv_len = w.kv_len,
                    .head_dim = w.head_dim},
                   normal_),
        pool_(w.threads) {
    if (w.mask == "additive") bias_ = normal_tensor<T, 4>(normal_, {w.batch, 1, w.q_len, w.kv_len});
  }
  void run() override {
    if (padding_)
      run_under(attn::KeyPadding{lengths_});
    else if (bias_.size() > 0)
      run_under(attn::AdditiveBias{bias_});
    else if (causal_)
      attend(attn::Causal{});
    else
      attend(attn::NoMask{});
  }
  void save(const std::string& path) const override { bench::save_floats(path, attention_.out); }

 private:
  template <class M>
  void run_under(const M& mask) {
    if (causal_)
      attend(attn::Causal{} & mask);
    else
      attend(mask);
  }
  template <class M>
  void attend(const M& mask) {
    attention_.run(mask, {.executor = pool_});
  }

  bool causal_, padding_;
  std::vector<Index> lengths_;
  NumpyNormal normal_;
  bench::Attention<T> attention_;
  Tensor<T, 4> bias_;
  attn::ThreadPool pool_;
};

/// The weight [out, in] of x W for W [in, out]: a view.
template <class T>
attn::TensorView<const T, 2> transposed(const Tensor<T, 2>& w) {
  return {w.data(), {w.extent(1), w.extent(0)}, {1, w.extent(1)}};
}

template <attn::Element T>
class LayerJob final : public bench::Job {
 public:
  explicit LayerJob(const Workload& w)
      : causal_(w.causal),
        padding_(w.mask == "padding"),
        lengths_(w.lengths),
        attention_({.embed_dim = w.embed_dim(),
                    .num_heads = w.num_heads,
                    .num_kv_heads = w.num_kv_heads,
                    .bias = false}),
        pool_(w.threads) {
    if (w.mask == "additive") throw Unsupported("a layer with an additive mask");
    if (w.num_kv_heads != w.num_heads) throw Unsupported("a layer with grouped heads");
    NumpyNormal normal;
    const Index dim = w.embed_dim();
    x_ = normal_tensor<T, 3>(normal, {w.batch, w.q_len, dim});
    out_ = Tensor<T, 3>(x_.extents());
    for (auto* projection :
         {&attention_.q_proj(), &attention_.k_proj(), &attention_.v_proj(), &attention_.out_proj()}) {
      const auto weight = normal_tensor<T, 2>(normal, {dim, dim}, 1 / std::sqrt(static_cast<float>(dim)));
      projection->weight().assign(transposed(weight));
      projection->pack();
    }
  }
  void run() override {
    if (padding_)
      attend(attn::KeyPadding{lengths_});
    else if (causal_)
      attend(attn::Causal{});
    else
      attend(attn::NoMask{});
  }
  void save(const std::string& path) const override { bench::save_floats(path, out_); }

 private:
  template <class M>
  void attend(const M& mask) {
    attention_.forward_into(x_, out_, mask, {.executor = pool_, .workspace = &workspace_});
  }

  bool causal_, padding_;
  std::vector<Index> lengths_;
  attn::MultiHeadAttention<T> attention_;
  Tensor<T, 3> x_, out_;
  attn::Workspace workspace_;
  attn::ThreadPool pool_;
};

class GemmJob final : public bench::Job {
 public:
  explicit GemmJob(const Workload& w) : out_({w.m, w.n}), pool_(w.threads) {
    NumpyNormal normal;
    x_ = normal_tensor<float, 2>(normal, {w.m, w.k});
    packed_ = attn::pack_linear<float>(transposed(normal_tensor<float, 2>(normal, {w.k, w.n})));
  }
  void run() override {
    attn::linear_into(std::as_const(x_).view(), packed_, out_.view(),
                      {.executor = pool_, .workspace = &workspace_});
  }
  void save(const std::string& path) const override { bench::save_floats(path, out_); }

 private:
  Tensor<float, 2> x_, out_;
  attn::PackedLinear<float> packed_;
  attn::Workspace workspace_;
  attn::ThreadPool pool_;
};

std::unique_ptr<bench::Job> make_job(const Workload& w) {
  const bool f32 = w.dtype == "f32", bf16 = w.dtype == "bf16";
  if (w.kind == "sdpa" && f32) return std::make_unique<SdpaJob<float>>(w);
  if (w.kind == "sdpa" && bf16) return std::make_unique<SdpaJob<Eigen::bfloat16>>(w);
  if (w.kind == "layer" && f32) return std::make_unique<LayerJob<float>>(w);
  if (w.kind == "layer" && bf16) return std::make_unique<LayerJob<Eigen::bfloat16>>(w);
  if (w.kind == "gemm" && f32) return std::make_unique<GemmJob>(w);
  throw Unsupported("kind " + w.kind + ", dtype " + w.dtype);
}

}  // namespace

int main(int argc, char** argv) {
  const std::string version = std::to_string(ATTN_VERSION_MAJOR) + "." + std::to_string(ATTN_VERSION_MINOR) +
                              "." + std::to_string(ATTN_VERSION_PATCH);
  return bench::serve(argc, argv, {"attn", version, Eigen::SimdInstructionSetsInUse()}, make_job);
}
