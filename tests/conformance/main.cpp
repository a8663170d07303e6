// attn_conformance DIR... - runs the outside cases of folders with a manifest.json through the library.
//
// Prints each failed case with its largest error, what was skipped and why, and as the last line
// "N passed, N failed, N skipped". Exit code 1 if a case failed or none passed, 2 if a folder cannot be read.
// With --verbose also a line for each passed case: its largest error as a part of what is allowed. With
// --require-all also exit code 1 if a case was skipped or an output not compared.
#include <cstdio>
#include <exception>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "registry.hpp"

namespace attn_conformance {
namespace {

std::map<std::string, Kind> all_kinds() {
  std::map<std::string, Kind> kinds;
  for (const auto& part :
       {onnx_attention_kinds(), onnx_elementwise_kinds(), onnx_gemm_kinds(), onnx_tensor_scatter_kinds(),
        rope_kinds(), torch_attention_kinds(), torch_elementwise_kinds(), torch_feed_forward_kinds(),
        torch_sdpa_kinds(), torch_sdpa_mask_kinds(), torch_transformer_kinds(), transformers_bert_kinds(),
        transformers_causal_lm_kinds(), transformers_encoder_decoder_kinds()})
    for (const Kind& kind : part) kinds.emplace(kind.name, kind);
  return kinds;
}

class Session {
 public:
  Session(bool verbose, bool requires_all) : verbose_(verbose), requires_all_(requires_all) {}

  void run_folder(const std::filesystem::path& folder) {
    const nlohmann::json manifest = attn::read_json(folder / "manifest.json");
    const std::vector<std::string> names = case_names(manifest);
    for (std::size_t i = 0; i < names.size(); ++i) {
      try {
        run_case(load_case(folder, manifest, i));
      } catch (const Skip& skip) {
        skipped_[skip.reason].push_back(names[i]);
      } catch (const std::exception& error) {
        report_failure(names[i], std::string("  ") + error.what() + "\n");
      }
    }
  }

  /// Prints the summary; true if cases passed and none failed (nor was left out, where all are required).
  bool finish() const {
    int skipped = 0;
    for (const auto& [reason, names] : skipped_) {
      std::printf("skipped, %s:", reason.c_str());
      for (const std::string& name : names) std::printf(" %s", name.c_str());
      std::printf("\n");
      skipped += static_cast<int>(names.size());
    }
    for (const auto& [output, kinds] : ignored_) {
      std::printf("output %s is not compared, attn does not compute it in:", output.c_str());
      for (const std::string& kind : kinds) std::printf(" %s", kind.c_str());
      std::printf("\n");
    }
    std::printf("%d passed, %d failed, %d skipped\n", passed_, failed_, skipped);
    const bool is_all = skipped_.empty() && ignored_.empty();
    return failed_ == 0 && passed_ > 0 && (is_all || !requires_all_);
  }

 private:
  void run_case(const Case& c) {
    const auto kind = kinds_.find(c.kind);
    if (kind == kinds_.end()) throw Skip{c.kind + " is not covered"};
    std::string failures;
    double worst = 0;
    for (const DType type : c.types) {
      const auto run = kind->second.runs.find(type);
      if (run == kind->second.runs.end())
        throw Skip{c.kind + " is not covered in " + std::string(name_of(type))};
      Comparison comparison(c, type);
      run->second(c, comparison);
      failures += comparison.failures();
      if (!comparison.compared_anything()) failures += "  no output was compared\n";
      worst = std::max(worst, comparison.worst());
      const std::vector<std::string> ignored = comparison.ignored();
      for (const std::string& output : ignored) ignored_[output].insert(c.kind);
    }
    if (!failures.empty()) return report_failure(c.name, failures);
    ++passed_;
    if (verbose_) std::printf("passed %s, %.2g of the allowed error\n", c.name.c_str(), worst);
  }
  void report_failure(const std::string& name, const std::string& failures) {
    ++failed_;
    std::printf("FAILED %s\n%s", name.c_str(), failures.c_str());
  }

  std::map<std::string, Kind> kinds_ = all_kinds();
  bool verbose_, requires_all_;
  int passed_ = 0, failed_ = 0;
  std::map<std::string, std::vector<std::string>> skipped_;
  std::map<std::string, std::set<std::string>> ignored_;
};

}  // namespace
}  // namespace attn_conformance

int main(int argc, char** argv) {
  std::vector<std::string> folders(argv + 1, argv + argc);
  const bool verbose = std::erase(folders, "--verbose") > 0;
  const bool requires_all = std::erase(folders, "--require-all") > 0;
  if (folders.empty()) {
    std::fprintf(stderr, "usage: attn_conformance [--verbose] [--require-all] DIR...\n");
    return 2;
  }
  attn_conformance::Session session(verbose, requires_all);
  try {
    for (const std::string& folder : folders) session.run_folder(folder);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 2;
  }
  return session.finish() ? 0 : 1;
}
