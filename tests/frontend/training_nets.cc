#include "tests/frontend/training_nets.h"

#include <cmath>
#include <string>

#include "tests/frontend/training_options.h"

namespace millrace {
namespace {

using layers::append;
using layers::Vars;

constexpr auto kFloat = DType::kFloat32;
constexpr auto kIds = DType::kInt64;

using Losses = std::vector<VarRef>;

// Weights have the names of the references, biases start uniform.
layers::FcOptions fc_options(const std::string& name, const std::string& act = {}) {
  layers::FcOptions options;
  options.act = act;
  options.param.name = name + ".w_0";
  options.bias = {.name = name + ".b_0", .initializer = init::Uniform{-0.1, 0.1}};
  return options;
}

layers::FcOptions without_bias(layers::FcOptions options) {
  options.has_bias = false;
  return options;
}

// Applies to the last of three dims.
VarRef fc3(const VarRef& x, int64_t size, const std::string& name, bool has_bias = true) {
  layers::FcOptions options = fc_options(name);
  options.num_flatten_dims = 2;
  options.has_bias = has_bias;
  return layers::fc(x, size, options);
}

VarRef op(Network& net, const layers::OpCall& call) {
  return append(net, call)[0];
}

VarRef squared_error(const VarRef& guess, const VarRef& y) {
  return layers::mean(layers::square(layers::elementwise_sub(guess, y)));
}

VarRef loss_of_classes(const VarRef& probabilities, const VarRef& label) {
  return layers::mean(layers::cross_entropy(probabilities, label));
}

VarRef classes(Network& net) {
  return net.data("label", {-1, 1}, kIds);
}

Losses linear(Network& net) {
  const VarRef x = net.data("x", {-1, 13});
  const VarRef y = net.data("y", {-1, 1});
  return {squared_error(layers::fc(x, 1, fc_options("fc_0")), y)};
}

Losses mlp(Network& net) {
  const VarRef x = net.data("img", {-1, 64});
  const VarRef label = classes(net);
  const VarRef h0 = layers::fc(x, 48, fc_options("fc_0", "relu"));
  const VarRef h1 = layers::fc(h0, 32, fc_options("fc_1", "tanh"));
  return {loss_of_classes(layers::fc(h1, 10, fc_options("fc_2", "softmax")), label)};
}

// A parameter with a separate rate, and one with a separate regularizer.
Losses mlp_fused_loss(Network& net) {
  const VarRef x = net.data("img", {-1, 64});
  const VarRef label = classes(net);
  layers::FcOptions slow = fc_options("fc_0", "sigmoid");
  slow.param.learning_rate = 0.5;
  layers::FcOptions sparse = fc_options("fc_1");
  sparse.param.regularizer = L1Decay{1e-3};
  const VarRef h0 = layers::fc(x, 40, slow);
  const VarRef z = layers::fc(h0, 32, sparse);
  const VarRef h1 = op(net, {"leaky_relu", {{"X", {z}}}, {"Out"}, {{"alpha", 0.1F}}});
  const VarRef scores = layers::fc(h1, 10, fc_options("fc_2"));
  return {layers::mean(layers::softmax_with_cross_entropy(scores, label))};
}

struct Filter {
  int64_t channels;
  int64_t size;
  std::string name;
  int32_t stride = 1;
  std::string act = "relu";
};

VarRef conv_bn(const VarRef& x, const Filter& filter) {
  const auto padding = static_cast<int32_t>((filter.size - 1) / 2);
  const VarRef h = layers::conv2d(x, filter.channels, {filter.size, filter.size},
                                  {.stride = {filter.stride, filter.stride},
                                   .padding = {padding, padding},
                                   .param = {.name = filter.name + ".w_0"},
                                   .has_bias = false});
  return layers::batch_norm(h, {.act = filter.act,
                                .param = {.name = filter.name + "_bn.w_0"},
                                .bias = {.name = filter.name + "_bn.b_0"},
                                .moving_mean_name = filter.name + "_bn.w_1",
                                .moving_variance_name = filter.name + "_bn.w_2"});
}

Losses lenet(Network& net) {
  const VarRef x = net.data("img", {-1, 1, 14, 14});
  const VarRef label = classes(net);
  VarRef h = layers::conv2d(
      x, 6, {5, 5},
      {.act = "relu", .param = {.name = "conv_0.w_0"}, .bias = {.name = "conv_0.b_0"}});
  h = layers::pool2d(h, {2, 2}, {.stride = {2, 2}});
  h = conv_bn(h, {12, 3, "conv_1"});
  h = layers::pool2d(h, {2, 2}, {.type = "avg", .stride = {2, 2}});
  return {loss_of_classes(layers::fc(h, 10, fc_options("fc_0", "softmax")), label)};
}

Losses resnet_of(Network& net, int64_t width) {
  const VarRef x = net.data("img", {-1, 3, 12, 12});
  const VarRef label = classes(net);
  VarRef h = conv_bn(x, {width, 3, "stem"});
  for (int i = 0; i < 2; ++i) {
    const std::string name = "res" + std::to_string(i);
    const int64_t channels = (i + 1) * width;
    const int32_t stride = i + 1;
    const VarRef shortcut = i == 0 ? h : conv_bn(h, {channels, 1, name + "_short", stride, ""});
    const VarRef inner = conv_bn(h, {channels, 3, name + "a", stride});
    const VarRef deep = conv_bn(inner, {channels, 3, name + "b", 1, ""});
    h = layers::relu(layers::elementwise_add(shortcut, deep));
  }
  h = op(net, {"pool2d",
               {{"X", {h}}},
               {"Out"},
               {{"pooling_type", std::string("avg")},
                {"ksize", std::vector<int32_t>{1, 1}},
                {"adaptive", true}}});
  return {loss_of_classes(layers::fc(h, 10, fc_options("fc_0", "softmax")), label)};
}

Losses resnet8(Network& net) {
  return resnet_of(net, 8);
}

Losses resnet6(Network& net) {
  return resnet_of(net, 6);
}

Losses word2vec(Network& net) {
  Vars words;
  for (int i = 0; i < 4; ++i) words.push_back(net.data("word_" + std::to_string(i), {-1, 1}, kIds));
  const VarRef next = net.data("next", {-1, 1}, kIds);
  const VarRef table =
      net.parameter({80, 12}, {.name = "shared_emb", .initializer = init::Uniform{-0.3, 0.3}});
  Vars rows;
  for (const VarRef& word : words)
    rows.push_back(layers::lookup_table(word, table, {.is_sparse = true}));
  const VarRef h = layers::fc(layers::concat(rows, 1), 32, fc_options("fc_0", "sigmoid"));
  return {loss_of_classes(layers::fc(h, 80, fc_options("fc_1", "softmax")), next)};
}

// A wide part with one column per table, and a deep part; slots of several ids.
Losses wide_and_deep(Network& net) {
  const VarRef dense = net.data("dense", {-1, 8});
  const VarRef click = net.data("click", {-1, 1}, kIds);
  const VarRef deep_table =
      net.parameter({120, 8}, {.name = "deep_emb", .initializer = init::Uniform{-0.2, 0.2}});
  const VarRef wide_table =
      net.parameter({120, 1}, {.name = "wide_emb", .initializer = init::Constant{0}});
  Vars slots;
  for (int i = 0; i < 3; ++i)
    slots.push_back(net.data("slot_" + std::to_string(i), {-1, 1}, kIds, 1));
  const auto pooled = [&](const VarRef& ids, const VarRef& table) {
    return layers::sequence_pool(layers::lookup_table(ids, table, {.is_sparse = true}), "sum");
  };
  Vars deep{dense};
  for (const VarRef& slot : slots) deep.push_back(pooled(slot, deep_table));
  VarRef h = layers::concat(deep, 1);
  Vars wide;
  for (const VarRef& slot : slots) wide.push_back(pooled(slot, wide_table));
  const VarRef sum = layers::sums(wide);
  h = layers::fc(h, 32, fc_options("deep_0", "relu"));
  h = layers::fc(h, 16, fc_options("deep_1", "relu"));
  const VarRef both = layers::concat({sum, h}, 1);
  return {loss_of_classes(layers::fc(both, 2, fc_options("ctr", "softmax")), click)};
}

Losses padded_slots(Network& net, bool is_sparse) {
  const VarRef ids = net.data("ids", {-1, 6}, kIds);
  const VarRef dense = net.data("dense", {-1, 8});
  const VarRef click = net.data("click", {-1, 1});
  const VarRef table =
      net.parameter({100, 8}, {.name = "emb_0", .initializer = init::Uniform{-0.2, 0.2}});
  const VarRef rows = op(net, {"lookup_table_v2",
                               {{"W", {table}}, {"Ids", {ids}}},
                               {"Out"},
                               {{"is_sparse", is_sparse}, {"padding_idx", int64_t{0}}}});
  // the op of paddle.sum, whose vars are called "sum_<n>"
  const VarRef sum =
      op(net, {"reduce_sum", {{"X", {rows}}}, {"Out"}, {{"dim", std::vector<int32_t>{1}}}, "sum"});
  const VarRef h = layers::fc(layers::concat({sum, dense}, 1), 24, fc_options("fc_0", "relu"));
  const VarRef p = layers::fc(h, 1, fc_options("fc_1", "sigmoid"));
  return {layers::mean(
      op(net,
         {"log_loss", {{"Predicted", {p}}, {"Labels", {click}}}, {"Loss"}, {{"epsilon", 1e-4F}}}))};
}

Losses padded_sparse(Network& net) {
  return padded_slots(net, true);
}

Losses padded_dense(Network& net) {
  return padded_slots(net, false);
}

VarRef embedded_words(Network& net, int64_t width, bool is_sparse) {
  const VarRef words = net.data("words", {-1, 1}, kIds, 1);
  classes(net);
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

Losses text_lstm(Network& net) {
  const VarRef e = embedded_words(net, 16, true);
  const VarRef z = layers::fc(e, 48, fc_options("fc_0"));
  const VarRef h = layers::dynamic_lstm(z, 12, rnn_options("lstm_0")).first;
  const VarRef f =
      layers::concat({layers::sequence_pool(h, "max"), layers::sequence_pool(h, "last"),
                      layers::sequence_pool(e, "sqrt")},
                     1);
  return {loss_of_classes(layers::fc(f, 2, fc_options("fc_1", "softmax")), net.handle("label"))};
}

Losses text_gru(Network& net) {
  const VarRef e = embedded_words(net, 12, false);
  const VarRef z = layers::fc(e, 30, fc_options("fc_0"));
  const VarRef h = layers::dynamic_gru(z, 10, rnn_options("gru_0"));
  const VarRef f = layers::sequence_pool(h, "average");
  return {loss_of_classes(layers::fc(f, 2, fc_options("fc_1", "softmax")), net.handle("label"))};
}

// softmax(q k) v of two heads over six words of width 16
VarRef attention(Network& net, const VarRef& x) {
  const auto heads = [&](const VarRef& t) {
    return layers::transpose(layers::reshape(t, {-1, 6, 2, 8}), {0, 2, 1, 3});
  };
  const VarRef q = heads(fc3(x, 16, "att_q"));
  const VarRef v = heads(fc3(x, 16, "att_v"));
  const VarRef k = heads(fc3(x, 16, "att_k", false));
  const VarRef scaled = layers::scale(q, 1.0 / std::sqrt(8.0));
  VarRef a = op(net, {"matmul_v2", {{"X", {scaled}}, {"Y", {k}}}, {"Out"}, {{"trans_y", true}}});
  a = layers::dropout(layers::softmax(a), 0.0, {.upscale_in_train = true});
  VarRef c = op(net, {"matmul_v2", {{"X", {a}}, {"Y", {v}}}, {"Out"}});
  c = layers::reshape(layers::transpose(c, {0, 2, 1, 3}), {-1, 6, 16});
  return fc3(c, 16, "att_o");
}

VarRef normed(const VarRef& x, const std::string& name) {
  return layers::layer_norm(
      x, {.begin_norm_axis = 2, .param = {.name = name + ".w_0"}, .bias = {.name = name + ".b_0"}});
}

Losses transformer(Network& net) {
  const VarRef ids = net.data("src", {-1, 6}, kIds);
  const VarRef label = net.data("label", {-1, 6, 1}, kIds);
  const VarRef table =
      net.parameter({60, 16}, {.name = "tok_emb", .initializer = init::Normal{0, 0.3}});
  VarRef x = op(net, {"lookup_table_v2", {{"W", {table}}, {"Ids", {ids}}}, {"Out"}});
  x = layers::elementwise_add(
      x, net.parameter({1, 6, 16}, {.name = "pos_emb", .initializer = init::Normal{0, 0.1}}));
  x = normed(layers::elementwise_add(x, attention(net, x)), "ln_0");
  const VarRef f = fc3(layers::gelu(fc3(x, 32, "ffn_0")), 16, "ffn_1");
  x = normed(layers::elementwise_add(x, f), "ln_1");
  return {layers::mean(layers::softmax_with_cross_entropy(fc3(x, 20, "proj"), label))};
}

// h[t] = tanh(h[t - 1] * w + b + x / t) over tensor arrays
Losses while_array(Network& net) {
  const VarRef x = net.data("x", {-1, 12});
  const VarRef y = net.data("y", {-1, 1});
  const VarRef i = layers::fill_constant(net, {1}, kIds, 0);
  const VarRef n = layers::fill_constant(net, {1}, kIds, 4);
  const VarRef mem = layers::array_write(layers::fc(x, 12, fc_options("boot", "tanh")), i);
  const VarRef xs = layers::array_write(x, i);
  for (int t = 1; t < 4; ++t) {
    const VarRef part = layers::scale(x, 1.0 / (t + 1));
    layers::array_write(part, layers::fill_constant(net, {1}, kIds, t), xs);
  }
  const VarRef more = layers::less_than(i, n);
  const VarRef w = net.parameter({12, 12}, {.name = "cell.w_0"});
  const VarRef b =
      net.parameter({12}, {.name = "cell.b_0", .initializer = init::Uniform{-0.1, 0.1}});
  layers::while_loop(more, [&] {
    const VarRef h = layers::array_read(mem, i);
    const VarRef xt = layers::array_read(xs, i);
    VarRef z = op(net, {"mul", {{"X", {h}}, {"Y", {w}}}, {"Out"}});
    z = layers::elementwise_add(z, b, 1);
    z = layers::tanh(layers::elementwise_add(z, xt));
    layers::increment(i);
    layers::array_write(z, i, mem);
    layers::assign(layers::less_than(i, n), more);
  });
  const VarRef last = layers::array_read(mem, i);
  return {squared_error(layers::fc(last, 1, fc_options("fc_0")), y)};
}

VarRef slice_step(Network& net, const VarRef& x, int32_t at) {
  return op(net, {"slice",
                  {{"Input", {x}}},
                  {"Out"},
                  {{"axes", std::vector<int32_t>{0}},
                   {"starts", std::vector<int32_t>{at}},
                   {"ends", std::vector<int32_t>{at + 1}},
                   {"decrease_axis", std::vector<int32_t>{0}}}});
}

// An Elman cell over a batch whose dim 0 is time.
Losses elman(Network& net) {
  const VarRef x = net.data("x", {5, -1, 10});
  const VarRef y = net.data("y", {-1, 1});
  const VarRef start = layers::fc(slice_step(net, x, 0), 12, fc_options("boot", "tanh"));
  const VarRef wx = net.parameter({10, 12}, {.name = "cell_x.w_0"});
  const VarRef wh = net.parameter({12, 12}, {.name = "cell_h.w_0"});
  const VarRef b =
      net.parameter({12}, {.name = "cell.b_0", .initializer = init::Uniform{-0.1, 0.1}});
  const auto product = [&](const VarRef& a, const VarRef& w) {
    return op(net, {"mul", {{"X", {a}}, {"Y", {w}}}, {"Out"}});
  };
  const auto cell = [&](const Vars& elements, const VarRef& state) {
    const VarRef in = product(elements[0], wx);
    const VarRef z = layers::elementwise_add(in, product(state, wh));
    const VarRef h = layers::tanh(layers::elementwise_add(z, b, 1));
    const VarRef next = layers::assign(h);
    return layers::RecurrentStep{next, layers::scale(h, 0.5)};
  };
  const auto [states, outs] = layers::recurrent({fc3(x, 10, "in")}, start, cell);
  const VarRef last = slice_step(net, states, 4);
  const VarRef average = op(
      net, {"reduce_mean", {{"X", {outs}}}, {"Out"}, {{"dim", std::vector<int32_t>{0}}}, "mean"});
  const VarRef both = layers::concat({average, last}, 1);
  return {squared_error(layers::fc(both, 1, fc_options("fc_0")), y)};
}

// One weight three times, one activation four times, an op that reads the same var twice.
Losses reused(Network& net) {
  const VarRef x = net.data("x", {-1, 16});
  const VarRef y = net.data("y", {-1, 1});
  const VarRef w = net.parameter({16, 16}, {.name = "tied.w_0"});
  const auto times_w = [&](const VarRef& of) {
    return op(net, {"mul", {{"X", {of}}, {"Y", {w}}}, {"Out"}});
  };
  const VarRef h = layers::tanh(times_w(x));
  const VarRef a = layers::sigmoid(times_w(h));
  const VarRef b = layers::elementwise_mul(h, h);
  const VarRef c = layers::matmul(h, w, {.transpose_y = true});
  const VarRef sum = layers::sums({a, b, c, h});
  return {squared_error(layers::fc(sum, 1, fc_options("fc_0")), y)};
}

// A frozen layer, a branch that is cut off, and a var through which no gradient flows.
Losses stopped(Network& net) {
  const VarRef x = net.data("x", {-1, 16});
  const VarRef y = net.data("y", {-1, 1});
  layers::FcOptions options = fc_options("frozen", "relu");
  options.param.trainable = false;
  options.bias = {.name = "frozen.b_0", .trainable = false};
  const VarRef frozen = layers::fc(x, 12, options);
  const VarRef a = layers::fc(frozen, 12, fc_options("fc_0", "tanh"));
  const VarRef cut = layers::fc(a, 12, without_bias(fc_options("cut", "tanh")));
  cut.stop_gradient();
  const VarRef c = layers::fc(a, 12, without_bias(fc_options("hidden", "tanh")));
  const VarRef sum = layers::sums({a, cut, c});
  return {squared_error(layers::fc(sum, 1, fc_options("fc_1")), y)};
}

Losses two_losses(Network& net) {
  const VarRef x = net.data("img", {-1, 64});
  const VarRef label = classes(net);
  const VarRef target = net.data("target", {-1, 1});
  const VarRef h = layers::fc(x, 24, fc_options("trunk", "tanh"));
  const VarRef first = loss_of_classes(layers::fc(h, 10, fc_options("cls", "softmax")), label);
  return {first, squared_error(layers::fc(h, 1, fc_options("reg")), target)};
}

Losses branches(Network& net) {
  const VarRef x = net.data("x", {-1, 16});
  const VarRef y = net.data("y", {-1, 1});
  const VarRef h = layers::fc(x, 16, fc_options("fc_0", "tanh"));
  const VarRef centre = layers::mean(x);
  const VarRef flag = layers::less_than(centre, layers::fill_constant(net, {}, kFloat, 0));
  const VarRef z = layers::cond(
      flag, [&] { return layers::fc(h, 8, fc_options("yes", "sigmoid")); },
      [&] { return layers::fc(h, 8, fc_options("no", "tanh")); });
  return {squared_error(layers::fc(z, 1, fc_options("fc_1")), y)};
}

constexpr TrainingNet kNets[] = {
    {"fit_a_line_sgd", linear, training::sgd},
    {"fit_a_line_l1_sgd_polynomial", linear, training::sgd_polynomial},
    {"mnist_mlp_nesterov_l2_clip_value", mlp, training::nesterov},
    {"mnist_mlp_lamb_warmup", mlp_fused_loss, training::lamb_warmup},
    {"lenet_bn_adam_exponential", lenet, training::adam_exponential},
    {"word2vec_sparse_sgd_inverse_time", word2vec, training::sgd_inverse_time},
    {"ctr_wide_deep_lod_adam", wide_and_deep, training::adam},
    {"ctr_padded_adagrad_l2", padded_sparse, training::adagrad_l2},
    {"ctr_logistic_ftrl", padded_dense, training::ftrl},
    {"text_lstm_adam_global_norm", text_lstm, training::adam_global_norm},
    {"text_gru_adamax_natural_exp", text_gru, training::adamax_natural_exp},
    {"resnet_momentum_l2_piecewise", resnet8, training::momentum_piecewise},
    {"transformer_adam_noam", transformer, training::adam_noam},
    {"while_array_rnn_rmsprop", while_array, training::rmsprop},
    {"recurrent_rnn_adagrad_cosine", elman, training::adagrad_cosine},
    {"reused_variables_sgd_clip_norm", reused, training::sgd_clip_norm},
    {"stop_gradient_momentum_fused_l2", stopped, training::fused_momentum},
    {"two_losses_sgd_momentum", two_losses, training::sgd_and_momentum},
    {"cond_error_clip_rmsprop_centered", branches, training::centered_rmsprop},
    {"resnet_lars_momentum", resnet6, training::lars},
};

}  // namespace

std::span<const TrainingNet> training_nets() {
  return kNets;
}

}  // namespace millrace
