// Networks written with the front end equal the programs that the original generates for them. The
// names that blocks read and write are sorted in the references; the original lists them in the
// order of a set.
#include <gtest/gtest.h>

#include "framework/diff/diff.h"
#include "framework/read_program.h"
#include "frontend/layers.h"
#include "tests/frontend/training_nets.h"

namespace millrace {
namespace {

void build_mixed(Network& net) {
  VarRef h = net.data("img", {-1, 4, 8, 8});
  h = layers::conv2d(h, 8, {3, 3}, {.padding = {1, 1}, .act = "relu"});
  h = layers::conv2d(h, 8, {3, 3}, {.padding = {1, 1}, .groups = 8, .has_bias = false});
  h = layers::batch_norm(h, {.act = "relu"});
  h = layers::conv2d(
      h, 6, {3, 1},
      {.stride = {2, 1}, .padding = {1, 0}, .groups = 2, .bias = {.learning_rate = 2.0}});
  h = layers::layer_norm(h);
  const VarRef a = layers::fc(h, 5, {.act = "tanh"});
  const VarRef b = layers::dropout(layers::fc({a, h}, 3), 0.3);
  layers::mean(b);
}

void build_seq(Network& net) {
  const VarRef words = net.data("words", {-1, 16}, DType::kFloat32, 1);
  const VarRef s = layers::sequence_conv(words, 6, {.act = "tanh"});
  const VarRef p = layers::sequence_pool(s, "max");
  const VarRef centre = layers::mean(p);
  const VarRef zero = layers::fill_constant(net, {}, DType::kFloat32, 0);
  layers::mean(layers::cond(
      layers::less_than(centre, zero), [&] { return layers::fc(p, 8, {.act = "sigmoid"}); },
      [&] { return layers::fc(p, 8, {.act = "relu"}); }));
}

struct Reference {
  const char* name;
  int32_t seed;
  const char* training_net;  ///< null: build
  void (*build)(Network&) = {};
};

void build(const Reference& reference, Network& net) {
  if (reference.training_net == nullptr) return reference.build(net);
  for (const TrainingNet& each : training_nets()) {
    if (each.name == std::string(reference.training_net)) each.build(net);
  }
}

class FrontendReferenceTest : public ::testing::TestWithParam<Reference> {};

void expect_same(const std::string& file, const Program& found) {
  const auto wanted = read_program("tests/data/frontend/" + file, {});
  ASSERT_TRUE(wanted.ok()) << wanted.status().to_string();
  for (const Difference& difference : diff_programs(**wanted, found, {}))
    ADD_FAILURE() << file << ": " << difference.to_string();
}

TEST_P(FrontendReferenceTest, IsMet) {
  Network net(GetParam().seed);
  build(GetParam(), net);
  ASSERT_TRUE(net.status().ok()) << net.status().to_string();
  expect_same(std::string(GetParam().name) + ".main.pb", net.main());
  expect_same(std::string(GetParam().name) + ".startup.pb", net.startup());
}

INSTANTIATE_TEST_SUITE_P(
    Networks, FrontendReferenceTest,
    ::testing::Values(Reference{"fit_a_line", 1447, "fit_a_line_sgd"},
                      Reference{"mlp", 3368, "mnist_mlp_nesterov_l2_clip_value"},
                      Reference{"lenet", 2623, "lenet_bn_adam_exponential"},
                      Reference{"word2vec", 3359, "word2vec_sparse_sgd_inverse_time"},
                      Reference{"text_lstm", 2753, "text_lstm_adam_global_norm"},
                      Reference{"text_gru", 2879, "text_gru_adamax_natural_exp"},
                      Reference{"mixed", 11, nullptr, build_mixed},
                      Reference{"seq", 11, nullptr, build_seq},
                      Reference{"while", 11, "while_array_rnn_rmsprop"}),
    [](const auto& reference) { return std::string(reference.param.name); });

}  // namespace
}  // namespace millrace
