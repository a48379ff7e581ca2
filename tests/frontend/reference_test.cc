// Networks written with the front end are the programs that the original writes for them. What
// blocks read and write is sorted in the references; the original lists it in the order of a set.
#include <gtest/gtest.h>

#include "framework/diff/diff.h"
#include "framework/read_program.h"
#include "frontend/layers.h"

namespace millrace {
namespace {

using layers::Vars;

// Weights have the names of the references, biases start uniform.
layers::FcOptions fc_options(const std::string& name, const std::string& act = {}) {
  layers::FcOptions options;
  options.act = act;
  options.param.name = name + ".w_0";
  options.bias = {.name = name + ".b_0", .initializer = init::Uniform{-0.1, 0.1}};
  return options;
}

VarRef loss_of_classes(const VarRef& probabilities, const VarRef& label) {
  return layers::mean(layers::cross_entropy(probabilities, label));
}

void build_fit_a_line(Network& net) {
  const VarRef x = net.data("x", {-1, 13});
  const VarRef y = net.data("y", {-1, 1});
  const VarRef off = layers::elementwise_sub(layers::fc(x, 1, fc_options("fc_0")), y);
  layers::mean(layers::square(off));
}

void build_mlp(Network& net) {
  const VarRef x = net.data("img", {-1, 64});
  const VarRef label = net.data("label", {-1, 1}, DType::kInt64);
  const VarRef h0 = layers::fc(x, 48, fc_options("fc_0", "relu"));
  const VarRef h1 = layers::fc(h0, 32, fc_options("fc_1", "tanh"));
  loss_of_classes(layers::fc(h1, 10, fc_options("fc_2", "softmax")), label);
}

void build_lenet(Network& net) {
  const VarRef x = net.data("img", {-1, 1, 14, 14});
  const VarRef label = net.data("label", {-1, 1}, DType::kInt64);
  VarRef h = layers::conv2d(
      x, 6, {5, 5},
      {.act = "relu", .param = {.name = "conv_0.w_0"}, .bias = {.name = "conv_0.b_0"}});
  h = layers::pool2d(h, {2, 2}, {.stride = {2, 2}});
  h = layers::conv2d(h, 12, {3, 3},
                     {.padding = {1, 1}, .param = {.name = "conv_1.w_0"}, .has_bias = false});
  h = layers::batch_norm(h, {.act = "relu",
                             .param = {.name = "conv_1_bn.w_0"},
                             .bias = {.name = "conv_1_bn.b_0"},
                             .moving_mean_name = "conv_1_bn.w_1",
                             .moving_variance_name = "conv_1_bn.w_2"});
  h = layers::pool2d(h, {2, 2}, {.type = "avg", .stride = {2, 2}});
  loss_of_classes(layers::fc(h, 10, fc_options("fc_0", "softmax")), label);
}

void build_word2vec(Network& net) {
  Vars words;
  for (int i = 0; i < 4; ++i)
    words.push_back(net.data("word_" + std::to_string(i), {-1, 1}, DType::kInt64));
  const VarRef next = net.data("next", {-1, 1}, DType::kInt64);
  const VarRef table =
      net.parameter({80, 12}, {.name = "shared_emb", .initializer = init::Uniform{-0.3, 0.3}});
  Vars rows;
  for (const VarRef& word : words)
    rows.push_back(layers::lookup_table(word, table, {.is_sparse = true}));
  const VarRef h = layers::fc(layers::concat(rows, 1), 32, fc_options("fc_0", "sigmoid"));
  loss_of_classes(layers::fc(h, 80, fc_options("fc_1", "softmax")), next);
}

VarRef embedded_words(Network& net, int64_t width, bool is_sparse) {
  const VarRef words = net.data("words", {-1, 1}, DType::kInt64, 1);
  net.data("label", {-1, 1}, DType::kInt64);
  const VarRef table =
      net.parameter({90, width}, {.name = "emb_0", .initializer = init::Uniform{-0.2, 0.2}});
  return layers::lookup_table(words, table, {.is_sparse = is_sparse});
}

layers::RnnOptions rnn_options(const std::string& name) {
  layers::RnnOptions options;
  options.param.name = name + ".w_0";
  options.bias = {.name = name + ".b_0", .initializer = init::Uniform{-0.1, 0.1}};
  return options;
}

void build_text_lstm(Network& net) {
  const VarRef e = embedded_words(net, 16, true);
  const VarRef z = layers::fc(e, 48, fc_options("fc_0"));
  const VarRef h = layers::dynamic_lstm(z, 12, rnn_options("lstm_0")).first;
  const VarRef f =
      layers::concat({layers::sequence_pool(h, "max"), layers::sequence_pool(h, "last"),
                      layers::sequence_pool(e, "sqrt")},
                     1);
  loss_of_classes(layers::fc(f, 2, fc_options("fc_1", "softmax")), net.handle("label"));
}

void build_text_gru(Network& net) {
  const VarRef e = embedded_words(net, 12, false);
  const VarRef z = layers::fc(e, 30, fc_options("fc_0"));
  const VarRef h = layers::dynamic_gru(z, 10, rnn_options("gru_0"));
  const VarRef f = layers::sequence_pool(h, "average");
  loss_of_classes(layers::fc(f, 2, fc_options("fc_1", "softmax")), net.handle("label"));
}

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

// h[t] = tanh(h[t - 1] * w + b + x / t) over tensor arrays
void build_while(Network& net) {
  const VarRef x = net.data("x", {-1, 12});
  const VarRef y = net.data("y", {-1, 1});
  const VarRef i = layers::fill_constant(net, {1}, DType::kInt64, 0);
  const VarRef n = layers::fill_constant(net, {1}, DType::kInt64, 4);
  const VarRef mem = layers::array_write(layers::fc(x, 12, fc_options("boot", "tanh")), i);
  const VarRef xs = layers::array_write(x, i);
  for (int t = 1; t < 4; ++t) {
    const VarRef part = layers::scale(x, 1.0 / (t + 1));
    layers::array_write(part, layers::fill_constant(net, {1}, DType::kInt64, t), xs);
  }
  const VarRef more = layers::less_than(i, n);
  const VarRef w = net.parameter({12, 12}, {.name = "cell.w_0"});
  const VarRef b =
      net.parameter({12}, {.name = "cell.b_0", .initializer = init::Uniform{-0.1, 0.1}});
  layers::while_loop(more, [&] {
    const VarRef h = layers::array_read(mem, i);
    const VarRef xt = layers::array_read(xs, i);
    VarRef z = layers::append(net, {"mul", {{"X", {h}}, {"Y", {w}}}, {"Out"}})[0];
    z = layers::elementwise_add(z, b, 1);
    z = layers::tanh(layers::elementwise_add(z, xt));
    layers::increment(i);
    layers::array_write(z, i, mem);
    layers::assign(layers::less_than(i, n), more);
  });
  const VarRef last = layers::array_read(mem, i);
  const VarRef off = layers::elementwise_sub(layers::fc(last, 1, fc_options("fc_0")), y);
  layers::mean(layers::square(off));
}

struct Reference {
  const char* name;
  int32_t seed;
  void (*build)(Network&);
};

class FrontendReferenceTest : public testing::TestWithParam<Reference> {};

void expect_same(const std::string& file, const Program& found) {
  const auto wanted = read_program("tests/data/frontend/" + file, {});
  ASSERT_TRUE(wanted.ok()) << wanted.status().to_string();
  for (const Difference& difference : diff_programs(**wanted, found, {}))
    ADD_FAILURE() << file << ": " << difference.to_string();
}

TEST_P(FrontendReferenceTest, IsMet) {
  Network net(GetParam().seed);
  GetParam().build(net);
  ASSERT_TRUE(net.status().ok()) << net.status().to_string();
  expect_same(std::string(GetParam().name) + ".main.pb", net.main());
  expect_same(std::string(GetParam().name) + ".startup.pb", net.startup());
}

INSTANTIATE_TEST_SUITE_P(Networks, FrontendReferenceTest,
                         testing::Values(Reference{"fit_a_line", 1447, build_fit_a_line},
                                         Reference{"mlp", 3368, build_mlp},
                                         Reference{"lenet", 2623, build_lenet},
                                         Reference{"word2vec", 3359, build_word2vec},
                                         Reference{"text_lstm", 2753, build_text_lstm},
                                         Reference{"text_gru", 2879, build_text_gru},
                                         Reference{"mixed", 11, build_mixed},
                                         Reference{"seq", 11, build_seq},
                                         Reference{"while", 11, build_while}),
                         [](const auto& reference) { return std::string(reference.param.name); });

}  // namespace
}  // namespace millrace
