// benchmarks/support/peer.hpp - one program of a comparison: takes a workload as JSON, announces itself, then
// does and times the work as it is asked to, one request a line.
//
//   request         answer, one line of JSON
//   run K           {"total_s": seconds of K runs, "iters": K}
//   rss             {"peak_rss_mb": ..., "extra_mb": growth since the inputs were ready}
//   out PATH        {"saved": PATH}: the last result as .npy, float32
//   peak            {"gflops": multiply-adds of one core, float, in this very program}
//   quit
//
// Kinds of work: sdpa; layer (four projections without bias around the attention); gemm (x W). Inputs are
// standard normal as numpy.random.default_rng(0) draws them, in the order q, k, v, bias; or x, wq, wk, wv, wo
// (the weights divided by sqrt(embed_dim), used as x W); or a, b.
#pragma once
#include <algorithm>
#include <fstream>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

#include "attn/core/tensor.hpp"
#include "attn/io/npy.hpp"
#include "support/peak.hpp"

namespace bench {

/// The workload asks for something that this program does not do.
struct Unsupported : std::runtime_error {
  using std::runtime_error::runtime_error;
};

struct Workload {
  std::string kind, mask, dtype;
  attn::Index threads = 1;
  attn::Index batch = 0, num_heads = 0, num_kv_heads = 0, q_len = 0, kv_len = 0, head_dim = 0;
  bool causal = false;
  std::vector<attn::Index> lengths;
  attn::Index m = 0, n = 0, k = 0;

  explicit Workload(const nlohmann::json& w)
      : kind(w.at("kind")),
        mask(w.value("mask", "none")),
        dtype(w.value("dtype", "f32")),
        threads(w.value("threads", attn::Index{1})) {
    if (kind == "gemm") {
      m = w.at("m"), n = w.at("n"), k = w.at("k");
      return;
    }
    batch = w.at("batch"), num_heads = w.at("q_heads"), num_kv_heads = w.at("kv_heads");
    q_len = w.at("q_len"), kv_len = w.at("kv_len"), head_dim = w.at("head_dim");
    causal = w.value("causal", false) && q_len > 1;  // a single query is the last one and sees every key
    lengths = w.value("lengths", lengths);
  }
  attn::Index embed_dim() const { return num_heads * head_dim; }
};

/// Work that holds its inputs and the memory of its output.
class Job {
 public:
  virtual ~Job() = default;
  virtual void run() = 0;
  /// Writes the last result as .npy, float32.
  virtual void save(const std::string& path) const = 0;
};

/// Writes a tensor of any element type as float32.
template <class T, int Rank>
void save_floats(const std::string& path, const attn::Tensor<T, Rank>& x) {
  attn::Tensor<float, Rank> values(x.extents());
  std::transform(x.data(), x.data() + x.size(), values.data(),
                 [](T value) { return static_cast<float>(value); });
  attn::write_npy(path, values);
}

/// Who answers: `name`, and what is measured under it.
struct Identity {
  std::string name, version, note;
};

namespace detail {

/// A line of /proc/self/status in MiB; 0 where there is none.
inline double memory_mb(const std::string& key) {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);)
    if (line.starts_with(key + ":")) return std::stod(line.substr(key.size() + 1)) / 1024;
  return 0;
}

inline nlohmann::json answer(std::istringstream& request, Job& job, double ready_mb) {
  std::string verb;
  request >> verb;
  if (verb == "run") {
    long count = 0;
    request >> count;
    const double start = now();
    for (long i = 0; i < count; ++i) job.run();
    return {{"total_s", now() - start}, {"iters", count}};
  }
  if (verb == "rss") {
    const double peak = memory_mb("VmHWM");
    return {{"peak_rss_mb", peak}, {"extra_mb", peak - ready_mb}};
  }
  if (verb == "out") {
    std::string path;
    std::getline(request >> std::ws, path);
    job.save(path);
    return {{"saved", path}};
  }
  if (verb == "peak") return {{"gflops", peak_gflops<float>()}};
  return {{"error", "unknown request: " + verb}};
}

}  // namespace detail

/// The whole program: make(workload) gives the work, or throws Unsupported.
template <class MakeJob>
int serve(int argc, char** argv, const Identity& identity, MakeJob make) {
  const auto say = [](const nlohmann::json& line) { std::cout << line.dump() << std::endl; };
  std::unique_ptr<Job> job;
  try {
    if (argc != 2) throw Unsupported("one argument, the workload as JSON, was expected");
    job = make(Workload(nlohmann::json::parse(argv[1])));
  } catch (const std::exception& error) {
    say({{"ready", false}, {"why", error.what()}});
    return 0;
  }
  std::ofstream("/proc/self/clear_refs") << 5;  // the high-water mark of memory starts anew
  const double ready_mb = detail::memory_mb("VmRSS");
  say({{"ready", true}, {"peer", identity.name}, {"version", identity.version}, {"note", identity.note}});
  for (std::string line; std::getline(std::cin, line) && line != "quit";) {
    std::istringstream request(line);
    try {
      say(detail::answer(request, *job, ready_mb));
    } catch (const std::exception& error) {
      say({{"error", error.what()}});
    }
  }
  return 0;
}

}  // namespace bench
