// attn as one program of a comparison; the protocol and the inputs are those of support/peer.hpp.
#include "attn/attn.hpp"

#include <cmath>

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

std::unique_ptr<bench::Job> make_job(const Workload& w) {
  if (w.kind == "sdpa" && w.dtype == "f32") return std::make_unique<SdpaJob<float>>(w);
  if (w.kind == "sdpa" && w.dtype == "bf16") return std::make_unique<SdpaJob<Eigen::bfloat16>>(w);
  throw Unsupported("kind " + w.kind + ", dtype " + w.dtype);
}

}  // namespace

int main(int argc, char** argv) {
  return bench::serve(argc, argv, {"attn", "0", Eigen::SimdInstructionSetsInUse()}, make_job);
}
