// head_counts - what the number of heads costs: parameters, work, memory and time of a multi-head attention
// layer for h query heads and every number of key-value heads that divides h.
//
// "Attention Is All You Need" (section 3.2.2) states that with d_k = d_model / h the total cost is about that
// of one head of full width: the FLOP column shows it for each ratio h / h_kv, and the time column tests it.
#include <algorithm>
#include <chrono>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "attn/core/thread_pool.hpp"
#include "attn/io/file.hpp"
#include "attn/modules/multi_head_attention.hpp"
#include "attn/modules/parameters.hpp"
#include "common/head_cost.hpp"
#include "common/plot.hpp"
#include "common/program.hpp"
#include "common/progress.hpp"
#include "common/table.hpp"

namespace {

using attn::Index;
using namespace attn::examples;

struct Options {
  HeadCounts base;
  std::vector<Index> heads{1, 4, 8, 16, 32};
  Index threads = 1;
  double seconds = 0.3;
  bool json = false;
  std::string plot;
};

struct Result {
  HeadCounts counts;
  double seconds = 0;  // of one forward pass
  double gflops() const { return static_cast<double>(total_flops(counts)) / seconds * 1e-9; }
};

void add_options(CLI::App& app, Options& o) {
  const CLI::Range positive(Index{1}, Index{1} << 30);
  app.add_option("--d-model", o.base.d_model, "Width of the model")->check(positive)->capture_default_str();
  app.add_option("--length", o.base.length, "Tokens in a sequence")->check(positive)->capture_default_str();
  app.add_option("--batch", o.base.batch, "Sequences")->check(positive)->capture_default_str();
  app.add_option("--heads", o.heads, "Numbers of query heads, each a divisor of d-model")
      ->check(positive)
      ->delimiter(',')
      ->capture_default_str();
  app.add_option("-t,--threads", o.threads, "Threads to compute with")
      ->check(CLI::Range(1, 1024))
      ->capture_default_str();
  app.add_option("--seconds", o.seconds, "Time to measure each configuration for")
      ->check(CLI::Range(0.0, 3600.0))
      ->capture_default_str();
  app.add_flag("--json", o.json, "Print one JSON object instead of a table");
  app.add_option("--plot", o.plot, "Also write a chart to this SVG file");
}

attn::Tensor<float, 3> random_tokens(const HeadCounts& c) {
  attn::Tensor<float, 3> tokens({c.batch, c.length, c.d_model});
  const attn::CounterRandom random(1);
  for (Index i = 0; i < tokens.size(); ++i)
    tokens.data()[i] = static_cast<float>(random.normal(static_cast<std::uint64_t>(i)));
  return tokens;
}

/// Median time of a forward pass over random tokens, which is made at least three times.
double time_forward(const HeadCounts& c, double seconds, attn::ThreadPool& pool) {
  using Clock = std::chrono::steady_clock;
  attn::MultiHeadAttention<float> layer(
      {.embed_dim = c.d_model, .num_heads = c.num_heads, .num_kv_heads = c.num_kv_heads, .bias = false});
  attn::xavier_uniform(layer, 1);
  const attn::Tensor<float, 3> tokens = random_tokens(c);
  attn::Tensor<float, 3> out(tokens.extents());
  attn::Workspace workspace;
  const auto forward = [&] {
    layer.forward_into(tokens, out, attn::NoMask{}, {.executor = pool, .workspace = &workspace});
  };
  forward();
  std::vector<double> times;
  for (double total = 0; total < seconds || times.size() < 3; total += times.back()) {
    const auto start = Clock::now();
    forward();
    times.push_back(std::chrono::duration<double>(Clock::now() - start).count());
  }
  const auto middle = times.begin() + static_cast<std::ptrdiff_t>(times.size() / 2);
  std::ranges::nth_element(times, middle);
  return *middle;
}

std::vector<Result> measure(const Options& o) {
  const std::vector<HeadCounts> sweep = head_sweep(o.base, o.heads);
  attn::ThreadPool pool(o.threads);
  Progress progress("measuring", static_cast<Index>(sweep.size()));
  std::vector<Result> results;
  for (const HeadCounts& counts : sweep) {
    results.push_back({counts, time_forward(counts, o.seconds, pool)});
    progress.update(static_cast<Index>(results.size()));
  }
  return results;
}

void print_table(const std::vector<Result>& results) {
  Table table({{"h"},
               {"h_kv"},
               {"head_dim"},
               {"kind", Align::left},
               {"parameters"},
               {"MFLOP"},
               {"KV cache KiB"},
               {"time ms"},
               {"GFLOP/s"}});
  for (const Result& r : results) {
    const HeadCounts& c = r.counts;
    const char* kind = c.num_kv_heads == c.num_heads ? "MHA" : c.num_kv_heads == 1 ? "MQA" : "GQA";
    table.add_row({std::to_string(c.num_heads), std::to_string(c.num_kv_heads), std::to_string(c.head_dim()),
                   kind, grouped(parameter_count(c)), fixed(static_cast<double>(total_flops(c)) * 1e-6, 1),
                   fixed(static_cast<double>(kv_cache_bytes(c)) / 1024, 1), fixed(r.seconds * 1e3, 3),
                   fixed(r.gflops(), 1)});
  }
  table.print(std::cout);
}

void print_json(const Options& o, const std::vector<Result>& results) {
  nlohmann::ordered_json all{{"d_model", o.base.d_model},
                             {"length", o.base.length},
                             {"batch", o.base.batch},
                             {"threads", o.threads},
                             {"configurations", nlohmann::ordered_json::array()}};
  for (const Result& r : results)
    all["configurations"].push_back({{"num_heads", r.counts.num_heads},
                                     {"num_kv_heads", r.counts.num_kv_heads},
                                     {"head_dim", r.counts.head_dim()},
                                     {"parameters", parameter_count(r.counts)},
                                     {"flops", total_flops(r.counts)},
                                     {"kv_cache_bytes", kv_cache_bytes(r.counts)},
                                     {"seconds", r.seconds},
                                     {"gflops_per_second", r.gflops()}});
  std::cout << all.dump(1) << '\n';
}

/// One panel: a line for each ratio of query to key-value heads, over the numbers of query heads.
template <class Value>
Panel make_panel(const Options& o, const std::vector<Result>& results, Panel panel, Value value) {
  std::set<Index> groups;
  for (const Result& r : results) groups.insert(r.counts.group_size());
  for (const Index group : groups) {
    Series series{group == 1 ? "h_kv = h" : "h_kv = h/" + std::to_string(group), {}};
    for (const Index heads : o.heads) {
      const auto found = std::ranges::find_if(results, [&](const Result& r) {
        return r.counts.num_heads == heads && r.counts.group_size() == group;
      });
      series.values.push_back(found == results.end() ? std::nullopt : std::optional(value(*found)));
    }
    panel.series.push_back(std::move(series));
  }
  return panel;
}

void write_plot(const Options& o, const std::vector<Result>& results) {
  Plot plot{"What the number of heads costs: d_model " + std::to_string(o.base.d_model) + ", " +
                std::to_string(o.base.batch) + " x " + std::to_string(o.base.length) + " tokens",
            "query heads h",
            {},
            {}};
  for (const Index heads : o.heads) plot.x_values.push_back(std::to_string(heads));
  plot.panels.push_back(make_panel(o, results, {"Work", "GFLOP", {}}, [](const Result& r) {
    return static_cast<double>(total_flops(r.counts)) * 1e-9;
  }));
  plot.panels.push_back(
      make_panel(o, results, {"Time", "ms", {}}, [](const Result& r) { return r.seconds * 1e3; }));
  plot.panels.push_back(make_panel(o, results, {"KV cache", "MiB", {}}, [](const Result& r) {
    return static_cast<double>(kv_cache_bytes(r.counts)) / (1 << 20);
  }));
  attn::FileWriter file(o.plot);
  file.write(to_svg(plot));
  file.commit();
}

void run(const Options& o) {
  const std::vector<Result> results = measure(o);
  if (!o.plot.empty()) write_plot(o, results);
  if (o.json)
    print_json(o, results);
  else
    print_table(results);
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Shows what the number of heads of a multi-head attention layer costs.", "head_counts");
  Options options;
  add_options(app, options);
  return run_program(app, argc, argv, [&] { run(options); });
}
