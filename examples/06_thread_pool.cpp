// Your own thread pool: an executor is any object with these two members. The result never depends on it.
#include <atomic>
#include <cstdio>
#include <thread>
#include <vector>

#include "attn/attn.hpp"

namespace {

/// The simplest pool: new threads for each loop. An adapter to the pool of your application looks the same.
struct MyPool {
  attn::Index threads = 3;
  int loops = 0;

  attn::Index concurrency() const { return threads; }

  void parallel_for(attn::Index count, attn::TaskRef task) {
    ++loops;
    std::atomic<attn::Index> next{0};
    std::vector<std::thread> workers;
    for (attn::Index worker = 0; worker < threads; ++worker)
      workers.emplace_back([&, worker] {
        for (attn::Index i; (i = next.fetch_add(1)) < count;) task(i, worker);
      });
    for (std::thread& worker : workers) worker.join();
  }
};

}  // namespace

int main() {
  const attn::Dims<4> extents{2, 8, 300, 64};  // batch, heads, len, head_dim
  attn::Tensor<float, 4> x(extents), out(extents);
  const attn::CounterRandom random(1);
  for (attn::Index i = 0; i < x.size(); ++i)
    x.data()[i] = static_cast<float>(random.normal(static_cast<std::uint64_t>(i)));

  MyPool pool;
  attn::Workspace workspace;  // kept between calls: the second one allocates nothing
  for (int call = 0; call < 2; ++call)
    attn::sdpa_into(x, x, x, out, attn::Causal{}, {.executor = pool, .workspace = &workspace});

  const bool same_bits = out == attn::sdpa(x, x, x, attn::Causal{});
  std::printf("%d loops on %lld threads, %s bits as on one thread\n", pool.loops,
              static_cast<long long>(pool.threads), same_bits ? "the same" : "other");
  return same_bits && pool.loops > 0 ? 0 : 1;
}
