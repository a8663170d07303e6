// kv_cache_sizes - how much memory the keys and values of a text take while a model continues it, for the
// shapes of published models and each type that a cache may store: from attn's own caches.
//
// A decoder of h query heads on h_kv key-value heads keeps h / h_kv times less than one with a key-value head
// for each query head: 4 times for Llama 3 8B, as its row and that of the same model "if MHA" show.
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "attn/io/file.hpp"
#include "attn/models/causal_lm_json.hpp"
#include "common/cache_cost.hpp"
#include "common/plot.hpp"
#include "common/program.hpp"
#include "common/table.hpp"

namespace {

using attn::Index;
using namespace attn::examples;

constexpr StoredAs types[] = {StoredAs::f32, StoredAs::bf16, StoredAs::int8};

struct Options {
  Index context = 8192;
  std::string model, plot;
  bool json = false;
};

void add_options(CLI::App& app, Options& o) {
  app.add_option("-c,--context", o.context, "Tokens in the cache")
      ->check(CLI::Range(Index{1}, Index{1} << 30))
      ->capture_default_str();
  app.add_option("-m,--model", o.model, "Also the shape of the model in this folder (its config.json)");
  app.add_flag("--json", o.json, "Print one JSON object instead of a table");
  app.add_option("--plot", o.plot, "Also write a chart of Llama 3 8B's cache to this SVG file");
}

double mebibytes(Index bytes) { return static_cast<double>(bytes) / (1 << 20); }

std::vector<CacheShape> shapes_of(const Options& o) {
  std::vector<CacheShape> shapes = known_cache_shapes();
  if (!o.model.empty()) {
    const attn::CausalLMConfig c =
        attn::read_causal_lm_config(std::filesystem::path(o.model) / "config.json");
    shapes.push_back({o.model, c.num_layers, c.num_heads, c.kv_heads(), c.dim_of_heads()});
  }
  return shapes;
}

void print_table(const Options& o) {
  std::vector<Column> columns{{"model", Align::left}, {"layers"},       {"h"}, {"h_kv"}, {"head_dim"},
                              {"kind", Align::left},  {"times smaller"}};
  for (const StoredAs type : types) columns.push_back({std::string(name_of(type)) + " bytes/token"});
  for (const StoredAs type : types) columns.push_back({std::string(name_of(type)) + " MiB"});
  Table table(std::move(columns));
  for (const CacheShape& s : shapes_of(o)) {
    std::vector<std::string> cells{s.model,
                                   std::to_string(s.num_layers),
                                   std::to_string(s.num_heads),
                                   std::to_string(s.num_kv_heads),
                                   std::to_string(s.head_dim),
                                   s.kind(),
                                   std::to_string(s.group_size())};
    for (const StoredAs type : types) cells.push_back(grouped(measured_cache_bytes_per_token(s, type)));
    for (const StoredAs type : types)
      cells.push_back(fixed(mebibytes(measured_cache_bytes_per_token(s, type) * o.context), 1));
    table.add_row(std::move(cells));
  }
  table.print(std::cout);
  std::cout << "MiB: for " << grouped(o.context) << " tokens.\n";
}

void print_json(const Options& o) {
  nlohmann::ordered_json all{{"context", o.context}, {"models", nlohmann::ordered_json::array()}};
  for (const CacheShape& s : shapes_of(o)) {
    nlohmann::ordered_json bytes;
    for (const StoredAs type : types) bytes[name_of(type)] = measured_cache_bytes_per_token(s, type);
    all["models"].push_back({{"model", s.model},
                             {"num_layers", s.num_layers},
                             {"num_heads", s.num_heads},
                             {"num_kv_heads", s.num_kv_heads},
                             {"head_dim", s.head_dim},
                             {"kind", s.kind()},
                             {"bytes_per_token", std::move(bytes)}});
  }
  std::cout << all.dump(1) << '\n';
}

/// One panel per storage type; in each the three ways of sharing heads, over the length of the context.
void write_plot(const Options& o) {
  const std::vector<CacheShape> shapes = known_cache_shapes();
  Plot plot{"The KV cache of Llama 3 8B: 32 query heads on 8 key-value heads, on 32 (MHA), on 1 (MQA)",
            "tokens",
            {},
            {}};
  for (const Index part : {1, 2, 3, 4}) plot.x_values.push_back(grouped(o.context * part / 4));
  for (const StoredAs type : types) {
    Panel panel{name_of(type), "MiB", {}};
    for (std::size_t i = 0; i < 3; ++i) {
      Series series{std::string(shapes[i].kind()) + " " + std::to_string(shapes[i].num_kv_heads), {}};
      for (const Index part : {1, 2, 3, 4})
        series.values.emplace_back(
            mebibytes(measured_cache_bytes_per_token(shapes[i], type) * (o.context * part / 4)));
      panel.series.push_back(std::move(series));
    }
    plot.panels.push_back(std::move(panel));
  }
  attn::FileWriter file(o.plot);
  file.write(to_svg(plot));
  file.commit();
}

void run(const Options& o) {
  if (!o.plot.empty()) write_plot(o);
  if (o.json)
    print_json(o);
  else
    print_table(o);
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Shows how much memory the KV cache of a model takes.", "kv_cache_sizes");
  Options options;
  add_options(app, options);
  return run_program(app, argc, argv, [&] { run(options); });
}
