#include "forward/user.hpp"

#include "all_headers.hpp"  // everything that was declared, defined

attn::ExecutorRef* attn_test::executor() {
  static attn::ThreadPool pool(2);
  static attn::ExecutorRef executor(pool);
  return &executor;
}
attn::Workspace* attn_test::workspace() {
  static attn::Workspace workspace;
  return &workspace;
}
attn::MultiHeadAttention<float>* attn_test::attention() {
  static attn::MultiHeadAttention<float> attention({.embed_dim = 8, .num_heads = 2});
  attn::xavier_uniform(attention, 1);
  return &attention;
}
float attn_test::difference(const attn::MultiHeadAttention<float>& attention, attn::ExecutorRef* executor,
                            attn::Workspace* workspace) {
  const attn::Matrix<float> x = attn::Matrix<float>::Random(40, 8),
                            here = attention.forward(x, attn::Causal{});
  return (attention.forward(x, attn::Causal{}, {.executor = *executor, .workspace = workspace}) - here)
      .cwiseAbs()
      .maxCoeff();
}
