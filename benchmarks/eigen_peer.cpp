// What one writes with Eigen alone, as one program of a comparison (support/peer.hpp): the formula head by
// head on whole matrices, the score matrix in memory. Same inputs, same outputs.
#include <Eigen/Core>
#include <cmath>
#include <limits>

#include "support/inputs.hpp"
#include "support/peer.hpp"

namespace {

using attn::Index;
using attn::Tensor;
using Matrix = Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
using Map = Eigen::Map<Matrix, 0, Eigen::OuterStride<>>;

/// out = softmax(q k^T / sqrt(head_dim)) v of one head; `scores` is scratch.
void attend(const Map& q, const Map& k, const Map& v, bool causal, Matrix& scores, Map out) {
  scores.noalias() = (q / std::sqrt(static_cast<float>(q.cols()))) * k.transpose();
  for (Index i = 0; i < scores.rows(); ++i) {
    auto row = scores.row(i).array();
    if (causal) row.tail(scores.rows() - 1 - i).setConstant(-std::numeric_limits<float>::infinity());
    row = (row - row.maxCoeff()).exp();
    row /= row.sum();
  }
  out.noalias() = scores * v;
}

Map matrix(Tensor<float, 2>& x) {
  return {x.data(), x.extent(0), x.extent(1), Eigen::OuterStride<>(x.extent(1))};
}

class GemmJob final : public bench::Job {
 public:
  explicit GemmJob(const bench::Workload& w) : out_({w.m, w.n}) {
    bench::NumpyNormal normal;
    a_ = bench::normal_tensor<float, 2>(normal, {w.m, w.k});
    b_ = bench::normal_tensor<float, 2>(normal, {w.k, w.n});
  }
  void run() override { matrix(out_).noalias() = matrix(a_) * matrix(b_); }
  void save(const std::string& path) const override { bench::save_floats(path, out_); }

 private:
  Tensor<float, 2> a_, b_, out_;
};

class SdpaJob final : public bench::Job {
 public:
  explicit SdpaJob(const bench::Workload& w)
      : causal_(w.causal), out_({w.batch, w.num_heads, w.q_len, w.head_dim}) {
    bench::NumpyNormal normal;
    q_ = bench::normal_tensor<float, 4>(normal, {w.batch, w.num_heads, w.q_len, w.head_dim});
    k_ = bench::normal_tensor<float, 4>(normal, {w.batch, w.num_kv_heads, w.kv_len, w.head_dim});
    v_ = bench::normal_tensor<float, 4>(normal, {w.batch, w.num_kv_heads, w.kv_len, w.head_dim});
  }
  void run() override {
    const Index group = q_.extent(1) / k_.extent(1);
    for (Index b = 0; b < q_.extent(0); ++b)
      for (Index h = 0; h < q_.extent(1); ++h)
        attend(head(q_, b, h), head(k_, b, h / group), head(v_, b, h / group), causal_, scores_,
               head(out_, b, h));
  }
  void save(const std::string& path) const override { bench::save_floats(path, out_); }

 private:
  static Map head(Tensor<float, 4>& x, Index b, Index h) {
    return {&x(b, h, 0, 0), x.extent(2), x.extent(3), Eigen::OuterStride<>(x.extent(3))};
  }

  bool causal_;
  Tensor<float, 4> q_, k_, v_, out_;
  Matrix scores_;
};

class LayerJob final : public bench::Job {
 public:
  explicit LayerJob(const bench::Workload& w)
      : num_heads_(w.num_heads), causal_(w.causal), out_({w.batch, w.q_len, w.embed_dim()}) {
    const Index dim = w.embed_dim();
    bench::NumpyNormal normal;
    x_ = bench::normal_tensor<float, 3>(normal, out_.extents());
    for (auto& weight : weights_)
      weight = bench::normal_tensor<float, 2>(normal, {dim, dim}, 1 / std::sqrt(static_cast<float>(dim)));
    q_ = k_ = v_ = heads_ = Tensor<float, 2>({w.batch * w.q_len, dim});
  }
  void run() override {
    const Map x(x_.data(), q_.extent(0), q_.extent(1), Eigen::OuterStride<>(q_.extent(1)));
    matrix(q_).noalias() = x * matrix(weights_[0]);
    matrix(k_).noalias() = x * matrix(weights_[1]);
    matrix(v_).noalias() = x * matrix(weights_[2]);
    for (Index b = 0; b < out_.extent(0); ++b)
      for (Index h = 0; h < num_heads_; ++h)
        attend(head(q_, b, h), head(k_, b, h), head(v_, b, h), causal_, scores_, head(heads_, b, h));
    Map(out_.data(), q_.extent(0), q_.extent(1), Eigen::OuterStride<>(q_.extent(1))).noalias() =
        matrix(heads_) * matrix(weights_[3]);
  }
  void save(const std::string& path) const override { bench::save_floats(path, out_); }

 private:
  Map head(Tensor<float, 2>& x, Index b, Index h) const {
    const Index rows = out_.extent(1), columns = x.extent(1) / num_heads_;
    return {&x(b * rows, h * columns), rows, columns, Eigen::OuterStride<>(x.extent(1))};
  }

  Index num_heads_;
  bool causal_;
  Tensor<float, 3> x_, out_;
  Tensor<float, 2> weights_[4], q_, k_, v_, heads_;
  Matrix scores_;
};

std::unique_ptr<bench::Job> make_job(const bench::Workload& w) {
  if (w.dtype != "f32") throw bench::Unsupported("float only");
  if (w.mask != "none") throw bench::Unsupported("no mask but causal");
  if (w.threads != 1) throw bench::Unsupported("one thread only");
  if (w.kind == "gemm") return std::make_unique<GemmJob>(w);
  if (w.kind == "sdpa") return std::make_unique<SdpaJob>(w);
  if (w.kind == "layer" && w.num_heads == w.num_kv_heads) return std::make_unique<LayerJob>(w);
  throw bench::Unsupported("kind " + w.kind + " with these heads");
}

}  // namespace

int main(int argc, char** argv) {
#if defined(EIGEN_VERSION_STRING)  // since Eigen 5
  const std::string version = EIGEN_VERSION_STRING;
#else
  const std::string version = std::to_string(EIGEN_WORLD_VERSION) + "." +
                              std::to_string(EIGEN_MAJOR_VERSION) + "." + std::to_string(EIGEN_MINOR_VERSION);
#endif
  return bench::serve(argc, argv, {"eigen", version, Eigen::SimdInstructionSetsInUse()}, make_job);
}
