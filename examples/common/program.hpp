// examples/common/program.hpp - what every example program does around its work: options, errors, exit codes.
#pragma once
#include <CLI/CLI.hpp>
#include <exception>
#include <iostream>
#include <string>
#include <vector>

#include "attn/ops/build_info.hpp"

namespace attn::examples {

/// What to say of words on the command line that no option takes: a mistyped option before all else.
inline std::string describe_surplus(const std::vector<std::string>& words) {
  for (const std::string& word : words)
    if (word.size() > 1 && word.front() == '-') return "there is no option " + word;
  return "one word too many: " + words.front() + " (a text of several words goes in quotes)";
}

/// Parses the command line into `app`'s options and runs `work`.
///
/// Returns 0 if all went well (or help was asked for), 2 after a fault of the command line, 1 after any other
/// error, with one message on standard error.
template <class Work>
int run_program(CLI::App& app, int argc, char** argv, Work&& work) {
  try {
    app.parse(argc, argv);
    if (!build_info().is_fast())
      std::cerr << app.get_name() << ": built without AVX2 or better, and slow for that (" << build_info()
                << "); build with ATTN_NATIVE or -march=x86-64-v3\n";
    work();
    std::cout.flush();
    if (std::cout) return 0;
    std::cerr << app.get_name() << ": cannot write to standard output\n";
    return 1;
  } catch (const CLI::ExtrasError&) {
    std::cerr << app.get_name() << ": " << describe_surplus(app.remaining()) << "; see --help\n";
    return 2;
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;
  } catch (const std::exception& error) {
    std::cerr << app.get_name() << ": " << error.what() << '\n';
    return 1;
  }
}

}  // namespace attn::examples
