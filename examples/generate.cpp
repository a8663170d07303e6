// generate - continues a text with a language model, token by token, as it comes:
//
//   generate --model models/smollm2 "The lighthouse stood on a rock far out at sea. Every evening"
//   generate --model models/smollm2 --chat "What is the capital of France?"
#include <signal.h>  // NOLINT(modernize-deprecated-headers): sigaction is of POSIX

#include <atomic>
#include <chrono>
#include <ctime>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "attn/core/thread_pool.hpp"
#include "attn/models/causal_lm_json.hpp"
#include "attn/models/sampling.hpp"
#include "common/bpe.hpp"
#include "common/chat.hpp"
#include "common/decoder.hpp"
#include "common/program.hpp"
#include "common/table.hpp"

namespace {

using attn::Index;
using namespace attn::examples;

struct Options {
  std::string model, prompt, system{default_system_message};
  bool chat = false, ignore_end = false, stats = false;
  Index max_tokens = 128;
  Index threads = std::max(1U, std::thread::hardware_concurrency());
  std::optional<double> temperature;
  std::optional<std::uint64_t> seed;
  attn::SamplingOptions sampling;
  std::string weights = "f32", cache = "f32";

  /// Greedy, unless an option says how to draw.
  attn::SamplingOptions resolved_sampling() const {
    attn::SamplingOptions s = sampling;
    const bool draws = s.top_k > 0 || s.top_p < 1 || seed.has_value();
    s.temperature = temperature.value_or(draws ? 1 : 0);
    s.seed = seed.value_or(0);
    return s;
  }
};

void add_sampling_options(CLI::App& app, Options& o) {
  app.add_option(
         "--temperature", o.temperature,
         "Draw from softmax(logits / temperature); 0: take the likeliest token [0, or 1 with another option "
         "of drawing]")
      ->check(CLI::Range(0.0, 1e6));
  app.add_option("--top-k", o.sampling.top_k, "Draw from this many likeliest tokens; 0: from all")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  app.add_option("--top-p", o.sampling.top_p,
                 "Draw from the fewest likeliest tokens with this probability together")
      ->check(CLI::Range(1e-9, 1.0))
      ->capture_default_str();
  app.add_option("--repetition-penalty", o.sampling.repetition_penalty,
                 "Above 1: tokens that were there are less likely")
      ->check(CLI::Range(1e-3, 1e3))
      ->capture_default_str();
  app.add_option("--seed", o.seed, "The same seed draws the same tokens [0]");
}

void add_options(CLI::App& app, Options& o) {
  app.add_option("prompt", o.prompt, "The text to continue")->required();
  app.add_option("-m,--model", o.model, "Folder with config.json, tokenizer.json and model.safetensors")
      ->required()
      ->check(CLI::ExistingDirectory);
  app.add_flag("--chat", o.chat, "The prompt is a message to a chat model (ChatML)");
  app.add_option("--system", o.system, "With --chat: what the model is told about itself")
      ->capture_default_str();
  app.add_option("-n,--max-tokens", o.max_tokens, "Tokens to generate at most")
      ->check(CLI::Range(Index{1}, Index{1} << 30))
      ->capture_default_str();
  app.add_flag("--ignore-end", o.ignore_end, "Go on where the model would end the text");
  app.add_option("--weights", o.weights, "What weights are stored as")
      ->check(CLI::IsMember({"f32", "bf16", "int8"}))
      ->capture_default_str();
  app.add_option("--cache", o.cache, "What keys and values are stored as")
      ->check(CLI::IsMember({"f32", "f16", "bf16", "int8"}))
      ->capture_default_str();
  app.add_option("-t,--threads", o.threads, "Threads to compute with")
      ->check(CLI::Range(1, 1024))
      ->capture_default_str();
  app.add_flag("--stats", o.stats, "Print speed and memory to standard error; runs once before it measures");
  add_sampling_options(app, o);
}

std::atomic<std::time_t> interrupted = 0;  // when; a signal handler may touch what has no lock
static_assert(std::atomic<std::time_t>::is_always_lock_free);

/// Ctrl-C ends the text after the token in work; one more, seconds later, ends the program. (`timeout` sends
/// the same signal twice at once.)
void end_text_on_interrupt() {
  struct sigaction action {};
  action.sa_handler = [](int signal) {
    const std::time_t now = std::time(nullptr);
    if (interrupted == 0) {
      interrupted = now;
    } else if (now - interrupted > 1) {
      ::signal(signal, SIG_DFL);
      raise(signal);
    }
  };
  action.sa_flags = SA_RESTART;
  sigaction(SIGINT, &action, nullptr);
}

class Stopwatch {
 public:
  double seconds() const { return std::chrono::duration<double>(Clock::now() - start_).count(); }

 private:
  using Clock = std::chrono::steady_clock;
  Clock::time_point start_ = Clock::now();
};

/// What was done, and how long it took.
struct Stats {
  Index prompt_tokens = 0, steps = 0;  // steps: tokens that went through the model one by one
  double prompt_seconds = 0, step_seconds = 0;
  double bytes_read = 0;  // by the steps: weights, and keys and values of the tokens before
};

/// The ids of the prompt, which fit into the model's context with at least one token after them.
std::vector<Index> prompt_ids(const Options& o, const Bpe& tokenizer, const attn::CausalLMConfig& config) {
  if (o.chat)
    for (const std::string_view mark : {chat_begin, chat_end})
      attn::check<attn::FormatError>(tokenizer.find(std::string(mark)).has_value(), o.model,
                                     "/tokenizer.json has no ", mark,
                                     ": this is not a chat model that knows ChatML");
  std::vector<Index> ids = tokenizer.encode(o.chat ? chat_prompt(o.prompt, o.system) : o.prompt);
  attn::check<attn::FormatError>(!ids.empty() && !o.prompt.empty(), "the prompt is empty");
  const auto count = static_cast<Index>(ids.size());
  attn::check<attn::FormatError>(count < config.max_len, "the prompt has ", count,
                                 " tokens, which leaves no room in the model's context of ", config.max_len);
  return ids;
}

/// Appends a prompt in pieces, between which Ctrl-C is heard and which bound the memory that a long one
/// takes.
std::span<const float> append_prompt(Decoder& decoder, std::span<const Index> ids) {
  constexpr std::size_t piece = 512;
  std::span<const float> logits;
  for (std::size_t at = 0; at < ids.size() && interrupted == 0; at += piece)
    logits = decoder.append(ids.subspan(at, std::min(piece, ids.size() - at)));
  return logits;
}

/// Streams the continuation of `ids`, at most `most` tokens, to standard output.
Stats generate(Decoder& decoder, const Bpe& tokenizer, attn::Sampler sampler, std::vector<Index> ids,
               Index most) {
  Stats stats{.prompt_tokens = static_cast<Index>(ids.size())};
  const double row_bytes =
      static_cast<double>(decoder.cache_bytes()) / static_cast<double>(decoder.max_len());
  StreamDecoder text(tokenizer);
  Stopwatch prompt_time;
  std::span<const float> logits = append_prompt(decoder, ids);
  stats.prompt_seconds = prompt_time.seconds();
  ids.reserve(ids.size() + attn::as_size(most));
  for (Index made = 0; made < most && interrupted == 0 && std::cout; ++made) {
    const Stopwatch step_time;
    if (made > 0) {
      stats.bytes_read +=
          static_cast<double>(decoder.weight_bytes()) + row_bytes * static_cast<double>(decoder.length());
      logits = decoder.append({&ids.back(), 1});
      ++stats.steps;
    }
    const attn::TensorView<const float, 1> row(logits.data(), {static_cast<Index>(logits.size())});
    const Index token = sampler.next(row, ids);
    if (made > 0) stats.step_seconds += step_time.seconds();
    if (sampler.is_stop(token)) break;
    ids.push_back(token);
    std::cout << text.push(token) << std::flush;
  }
  std::cout << text.finish() << '\n';
  return stats;
}

void print_stats(const Stats& s, const Decoder& decoder, const Options& o, double load_seconds) {
  const auto rate = [](double count, double seconds) { return seconds > 0 ? count / seconds : 0; };
  const double prompt_rate = rate(static_cast<double>(s.prompt_tokens), s.prompt_seconds);
  const double step_rate = rate(static_cast<double>(s.steps), s.step_seconds);
  const auto bytes = [](std::size_t count) { return grouped(static_cast<long long>(count)) + " bytes"; };
  std::cerr << "load: " << fixed(load_seconds, 3) << " s\n"
            << "prefill: " << s.prompt_tokens << " tokens in " << fixed(s.prompt_seconds, 3) << " s, "
            << fixed(prompt_rate, 1) << " tokens/s\n"
            << "decode: " << s.steps << " tokens in " << fixed(s.step_seconds, 3) << " s, "
            << fixed(step_rate, 1) << " tokens/s, reading "
            << fixed(rate(s.bytes_read, s.step_seconds) * 1e-9, 2) << " GB/s\n"
            << "weights: " << o.weights << ", " << bytes(decoder.weight_bytes()) << " read per token\n"
            << "cache: " << o.cache << ", " << bytes(decoder.cache_bytes()) << " for " << decoder.max_len()
            << " tokens, " << decoder.length() << " of them in use\n"
            << "threads: " << o.threads << '\n';
}

/// The first calls prepare weights and scratch memory; measured are the later ones.
void warm_up(Decoder& decoder, std::span<const Index> ids) {
  append_prompt(decoder, ids);
  decoder.append(ids.first(1));
  decoder.reset();
}

void run(const Options& o) {
  const std::filesystem::path directory = o.model;
  const attn::CausalLMConfig config = attn::read_causal_lm_config(directory / "config.json");
  const Bpe tokenizer = Bpe::load(directory / "tokenizer.json");
  attn::check<attn::FormatError>(tokenizer.size() <= config.vocab_size, o.model,
                                 "/tokenizer.json has ids up to ", tokenizer.size() - 1,
                                 ", but the model has a vocab_size of ", config.vocab_size);
  const std::vector<Index> ids = prompt_ids(o, tokenizer, config);
  attn::SamplingOptions sampling = o.resolved_sampling();
  if (!o.ignore_end) sampling.stop = config.end_tokens;
  if (o.chat && !o.ignore_end) sampling.stop.push_back(*tokenizer.find(std::string(chat_end)));

  const auto prompt_size = static_cast<Index>(ids.size());
  const Index most = std::min(o.max_tokens, config.max_len - prompt_size);
  attn::ThreadPool pool(o.threads);
  const Stopwatch load_time;
  const std::unique_ptr<Decoder> decoder = load_decoder(directory, {.weights = stored_as(o.weights),
                                                                    .cache = stored_as(o.cache),
                                                                    .max_len = prompt_size + most,
                                                                    .executor = pool});
  if (o.stats) warm_up(*decoder, ids);
  const double load_seconds = load_time.seconds();
  end_text_on_interrupt();
  const Stats stats = generate(*decoder, tokenizer, attn::Sampler(sampling), ids, most);
  if (o.stats) print_stats(stats, *decoder, o, load_seconds);
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Continues a text with a language model.", "generate");
  Options options;
  add_options(app, options);
  const int code = run_program(app, argc, argv, [&] { run(options); });
  return interrupted != 0 && code == 0 ? 128 + SIGINT : code;
}
