// attn/modules/parameters.hpp - all parameters of a module by name: visiting, counting, initialising.
//
// A module lists its members in one static function template, for const and mutable objects alike:
//   template <class Self, class F> static void visit_members(Self& self, F&& f) { f("weight", self.weight_);
//   ... }
// where a member is a Parameter, a module, or a std::vector of modules.
#pragma once
#include <cmath>
#include <concepts>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "attn/core/random.hpp"
#include "attn/modules/parameter.hpp"

ATTN_NAMESPACE_BEGIN

namespace detail {

template <class X>
inline constexpr bool is_parameter = false;
template <class T, int Rank>
inline constexpr bool is_parameter<Parameter<T, Rank>> = true;
template <class X>
inline constexpr bool is_vector = false;
template <class T>
inline constexpr bool is_vector<std::vector<T>> = true;

/// Calls f(path, parameter) for a member and all below it.
template <class Member, class F>
void visit_parameters(const std::string& path, Member& member, F& f) {
  using M = std::remove_const_t<Member>;
  if constexpr (is_parameter<M>) {
    if (member) f(std::as_const(path), member);
  } else if constexpr (is_vector<M>) {
    for (std::size_t i = 0; i < member.size(); ++i)
      visit_parameters(path + "." + std::to_string(i), member[i], f);
  } else {
    M::visit_members(member, [&](const char* name, auto& child) {
      visit_parameters(path.empty() ? std::string(name) : path + "." + name, child, f);
    });
  }
}

/// The same number for the same text everywhere (FNV-1a).
inline std::uint64_t hash_of(std::string_view text) {
  std::uint64_t hash = 0xCBF29CE484222325;
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001B3;
  return hash;
}

}  // namespace detail

/// Calls f(path, parameter) for every parameter that the module has, in the order of its members: path is
/// dotted, "layers.0.self_attention.q_proj.weight"; parameter is a Parameter<T, Rank>, const if the module
/// is.
template <class Module, class F>
  requires std::is_class_v<Module>
void for_each_parameter(Module& module, F f) { detail::visit_parameters(std::string(), module, f); }

/// Number of learnable values.
template <class Module>
Index parameter_count(const Module& module) {
  Index count = 0;
  for_each_parameter(module, [&](const std::string&, const auto& parameter) { count += parameter.size(); });
  return count;
}

/// Fills every matrix [out, in] with numbers uniform in +-sqrt(6 / (in + out)) (Glorot and Bengio 2010);
/// vectors (biases, norms) stay. A value depends on the seed, the parameter's path and its place only, and is
/// the same on every machine.
template <class Module>
void xavier_uniform(Module& module, std::uint64_t seed) {
  for_each_parameter(module, [&]<class T, int Rank>(const std::string& path, Parameter<T, Rank>& parameter) {
    if constexpr (Rank == 2) {
      const CounterRandom random(seed, detail::hash_of(path));
      const double bound =
          std::sqrt(6.0 / static_cast<double>(parameter.extents()[0] + parameter.extents()[1]));
      parameter.edit([&](const TensorView<T, 2>& values) {
        for (Index i = 0; i < values.size(); ++i)
          values.data()[i] = static_cast<T>(bound * (2 * random.uniform(static_cast<std::uint64_t>(i)) - 1));
      });
    }
  });
}

ATTN_NAMESPACE_END
