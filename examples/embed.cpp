// embed - ranks sentences by how close their meaning is to a query, with a BERT sentence encoder:
//
//   embed --model models/minilm --file examples/data/sentences.txt "Which train goes to the coast?"
#include <algorithm>
#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <numeric>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

#include "attn/core/thread_pool.hpp"
#include "common/program.hpp"
#include "common/progress.hpp"
#include "common/sentence_encoder.hpp"
#include "common/table.hpp"
#include "common/text.hpp"
#include "common/utf8.hpp"

namespace {

using attn::Index;
using namespace attn::examples;

// float, so that each number is written with as many digits as a float needs; members in the order of
// insertion.
using Json = nlohmann::basic_json<nlohmann::ordered_map, std::vector, std::string, bool, std::int64_t,
                                  std::uint64_t, float>;

struct Options {
  std::string model, query, file;
  Index threads = std::max(1U, std::thread::hardware_concurrency());
  Index batch = 16;
  Index top = 10;
  Index max_tokens = 256;
  bool json = false;
};

void add_options(CLI::App& app, Options& o) {
  app.add_option("query", o.query, "What to look for")->required();
  app.add_option("-m,--model", o.model, "Folder with config.json, vocab.txt and model.safetensors")
      ->required()
      ->check(CLI::ExistingDirectory);
  app.add_option("-f,--file", o.file,
                 "Text with one sentence per line, UTF-8; blank lines are skipped [standard input]");
  app.add_option("-n,--top", o.top, "Matches in the table; 0 for all")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  app.add_flag("--json", o.json,
               "Print one JSON object with all sentences in input order instead of a table");
  app.add_option("-t,--threads", o.threads, "Threads to compute with")
      ->check(CLI::Range(1, 1024))
      ->capture_default_str();
  app.add_option("--batch", o.batch, "Sentences computed together")
      ->check(CLI::Range(1, 65536))
      ->capture_default_str();
  app.add_option("--max-tokens", o.max_tokens, "Longer sentences are cut")
      ->check(CLI::Range(2, 1 << 20))
      ->capture_default_str();
}

/// One sentence, or the query, with all that is known of it.
struct Entry {
  std::string text;
  TokenIds ids;
  attn::Matrix<float> embedding;  // [1, dim]
  float score = 0;                // cosine of the angle to the query
};

std::vector<std::string> read_input(const Options& o) {
  if (o.file.empty()) return read_sentences(std::cin, "standard input");
  std::ifstream in(o.file, std::ios::binary);
  attn::check<attn::FormatError>(in.good(), "cannot read ", o.file);
  return read_sentences(in, o.file);
}

/// The query first, then the sentences in input order.
std::vector<Entry> embed_all(const Options& o, std::vector<std::string> texts) {
  const SentenceEncoder encoder(o.model, o.max_tokens);
  std::vector<TokenIds> ids;
  for (const std::string& text : texts) ids.push_back(encoder.tokenize(text));
  attn::ThreadPool pool(o.threads);
  Progress progress("embedding", static_cast<Index>(texts.size()));
  const attn::Matrix<float> embeddings = encoder.encode(
      ids, {.batch = o.batch, .executor = pool, .progress = [&](Index done) { progress.update(done); }});

  std::vector<Entry> entries;
  for (std::size_t i = 0; i < texts.size(); ++i) {
    const auto row = embeddings.row(static_cast<Index>(i));
    entries.push_back({std::move(texts[i]), std::move(ids[i]), row, embeddings.row(0).dot(row)});
  }
  return entries;
}

Json to_json(const Entry& entry) {
  const float* begin = entry.embedding.data();
  return {{"text", entry.text},
          {"ids", entry.ids},
          {"embedding", std::vector(begin, begin + entry.embedding.size())}};
}

void print_json(const std::vector<Entry>& entries) {
  Json all{{"query", to_json(entries[0])}, {"sentences", Json::array()}};
  for (std::size_t i = 1; i < entries.size(); ++i) {
    all["sentences"].push_back(to_json(entries[i]));
    all["sentences"].back()["score"] = entries[i].score;
  }
  std::cout << all << '\n';
}

void print_table(const std::vector<Entry>& entries, Index top) {
  std::vector<std::size_t> order(entries.size() - 1);
  std::iota(order.begin(), order.end(), std::size_t{1});
  // NaN, from a model that has some, comes last.
  std::ranges::sort(order, {}, [&](std::size_t i) {
    return std::tuple(std::isnan(entries[i].score), -entries[i].score, i);
  });
  if (top > 0) order.resize(std::min(order.size(), static_cast<std::size_t>(top)));

  Table table({{"rank"}, {"score"}, {"sentence", Align::left}});
  for (std::size_t rank = 0; rank < order.size(); ++rank) {
    const Entry& entry = entries[order[rank]];
    table.add_row({std::to_string(rank + 1), fixed(entry.score, 3), printable(entry.text)});
  }
  table.print(std::cout);
}

void run(const Options& o) {
  if (const auto at = find_invalid_utf8(o.query))
    attn::detail::raise<attn::FormatError>("the query is not UTF-8 (byte ", *at + 1, ")");
  attn::check<attn::FormatError>(o.query.find_first_not_of(" \t\r\n\v\f") != std::string::npos,
                                 "the query is empty");
  std::vector<std::string> texts = read_input(o);
  attn::check<attn::FormatError>(!texts.empty(), o.file.empty() ? "standard input" : o.file,
                                 " has no sentence");
  texts.insert(texts.begin(), o.query);
  const std::vector<Entry> entries = embed_all(o, std::move(texts));
  if (o.json)
    print_json(entries);
  else
    print_table(entries, o.top);
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Ranks sentences by how close their meaning is to a query.", "embed");
  Options options;
  add_options(app, options);
  return run_program(app, argc, argv, [&] { run(options); });
}
