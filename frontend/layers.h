#pragma once

#include <functional>
#include <initializer_list>
#include <source_location>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "frontend/network.h"

/// The layers of a network. Each function appends its ops to the program of its input, infers
/// shapes, and returns its result. An error is reported by Network::status() with the source line
/// of the call. Names of layers and options are those of fluid.
namespace millrace::layers {

using Where = std::source_location;
using Vars = std::vector<VarRef>;

// Shapes below write "..." for any number of leading dims. An input without network (the result of
// a failed call) makes the call fail as well. `where` is the user's source line; leave it out.
// ---- layers with parameters

/// Options of fc().
struct FcOptions {
  int num_flatten_dims = 1;  ///< number of leading dims to keep; the others are flattened
  std::string act = {};      ///< op type of the activation, for example "relu"; empty: none
  ParamAttr param = {};      ///< of the weights
  ParamAttr bias = {};       ///< of the bias
  bool has_bias = true;      ///< false: no bias is added
  std::string name = {};     ///< name of the layer; empty: "fc_<n>"
};
/// x * w + b over the last dims of x. Several inputs have one weight each; the products are added.
/// \param size  columns of the result, which is [dims that are kept..., size]
VarRef fc(const VarRef& x, int64_t size, const FcOptions& options = {},
          Where where = Where::current());
VarRef fc(const Vars& xs, int64_t size, const FcOptions& options = {},
          Where where = Where::current());

/// Options of conv2d().
struct Conv2dOptions {
  std::vector<int32_t> stride = {1, 1};    ///< height, width; also the following lists
  std::vector<int32_t> padding = {0, 0};   ///< zeros on both sides
  std::vector<int32_t> dilation = {1, 1};  ///< distance of the elements of a window
  int32_t groups = 1;                      ///< input and output channels are divided into that many
  std::string act = {};                    ///< as in FcOptions, also below
  ParamAttr param = {};                    ///< [filters, channels / groups, height, width]
  ParamAttr bias = {};                     ///< [filters]
  bool has_bias = true;
  std::string name = {};
};
/// x: [batch, channels, height, width]
/// \param filters  channels of the result, [batch, filters, height, width]
/// \param size     height and width of a window
VarRef conv2d(const VarRef& x, int64_t filters, std::vector<int64_t> size,
              const Conv2dOptions& options = {}, Where where = Where::current());

/// Options of batch_norm().
struct BatchNormOptions {
  std::string act = {};
  bool is_test = false;               ///< uses the running statistics
  double momentum = 0.9;              ///< weight of the old running statistics
  double epsilon = 1e-5;              ///< added to the variance
  bool use_global_stats = false;      ///< running statistics in training, too
  ParamAttr param = {};               ///< the scale, one element per channel
  ParamAttr bias = {};                ///< the shift, one element per channel
  std::string moving_mean_name = {};  ///< empty: generated, also the next
  std::string moving_variance_name = {};
  std::string name = {};
};
/// x: [batch, channels, ...] or [batch, channels]. Normalizes each channel; keeps running
/// statistics.
VarRef batch_norm(const VarRef& x, const BatchNormOptions& options = {},
                  Where where = Where::current());

/// Options of layer_norm().
struct LayerNormOptions {
  int32_t begin_norm_axis = 1;  ///< the dims from here on are normalized together
  bool scale = true;            ///< multiply by a parameter
  bool shift = true;            ///< add a parameter
  double epsilon = 1e-5;        ///< added to the variance
  std::string act = {};
  ParamAttr param = {};
  ParamAttr bias = {};
  std::string name = {};
};
/// Normalizes each row of x, viewed as a matrix (see begin_norm_axis).
VarRef layer_norm(const VarRef& x, const LayerNormOptions& options = {},
                  Where where = Where::current());

/// Options of embedding() and lookup_table().
struct EmbeddingOptions {
  bool is_sparse = false;    ///< the gradient is sparse: only the rows that were read
  int64_t padding_idx = -1;  ///< id whose row is read as zeros; -1: none
  ParamAttr param = {};      ///< of the table; lookup_table() refuses it
  std::string name = {};
};
/// ids: [..., 1]. Returns for each id its row of a new table.
/// \param rows, width  dims of the table; the result is [..., width]
VarRef embedding(const VarRef& ids, int64_t rows, int64_t width,
                 const EmbeddingOptions& options = {}, Where where = Where::current());
/// The same with an existing table.
VarRef lookup_table(const VarRef& ids, const VarRef& table, const EmbeddingOptions& options = {},
                    Where where = Where::current());

// ---- sequences

/// how: "sum", "average", "sqrt", "max", "last" or "first"
/// x has LoD; the result has one row for each sequence of the last level.
VarRef sequence_pool(const VarRef& x, const std::string& how, Where where = Where::current());

/// Options of sequence_conv().
struct SequenceConvOptions {
  int32_t filter_size = 3;  ///< rows of a window, centred on each row
  std::string act = {};
  ParamAttr param = {};
  ParamAttr bias = {};
  bool has_bias = true;
  std::string name = {};
};
/// x: [tokens, width] with LoD. A window never leaves its sequence. Result: [tokens, filters].
VarRef sequence_conv(const VarRef& x, int64_t filters, const SequenceConvOptions& options = {},
                     Where where = Where::current());

/// Options of dynamic_lstm() and dynamic_gru(); activations are names as in the original.
struct RnnOptions {
  bool use_peepholes = true;  ///< lstm only
  bool is_reverse = false;    ///< reads each sequence from its last row
  std::string gate_activation = "sigmoid";
  std::string cell_activation = "tanh";  ///< lstm only
  std::string candidate_activation = "tanh";
  ParamAttr param = {};  ///< weights of the state: [hidden, gates * hidden]
  ParamAttr bias = {};   ///< of the gates, for lstm also peepholes
  std::string name = {};
};
/// x: [tokens, 4 * hidden], the projected input. Returns hidden state and cell state.
/// x has LoD: one sequence per entry of its last level.
std::pair<VarRef, VarRef> dynamic_lstm(const VarRef& x, int64_t hidden,
                                       const RnnOptions& options = {},
                                       Where where = Where::current());
/// x: [tokens, 3 * hidden]
/// As dynamic_lstm(), with one state; returns [tokens, hidden].
VarRef dynamic_gru(const VarRef& x, int64_t hidden, const RnnOptions& options = {},
                   Where where = Where::current());

// ---- images and regularization

/// Options of pool2d().
struct Pool2dOptions {
  std::string type = "max";               ///< "max" or "avg"
  std::vector<int32_t> stride = {1, 1};   ///< height, width; also the next
  std::vector<int32_t> padding = {0, 0};  ///< on both sides; never the maximum
  bool global_pooling = false;            ///< one window over the whole image
  bool ceil_mode = false;                 ///< also windows that exceed the padded image
  bool exclusive = true;                  ///< averages do not include padding
};
/// x: [batch, channels, height, width]. \param size  height and width of a window
VarRef pool2d(const VarRef& x, std::vector<int32_t> size, const Pool2dOptions& options = {},
              Where where = Where::current());

/// Options of dropout().
struct DropoutOptions {
  bool is_test = false;           ///< inference: drops nothing
  int32_t seed = 0;               ///< 0: a different seed in every run
  bool upscale_in_train = false;  ///< true: scale up in training; false: scale down in inference
};
/// Sets each element to 0 with this probability, in training.
VarRef dropout(const VarRef& x, double probability, const DropoutOptions& options = {},
               Where where = Where::current());

// ---- losses and metrics

/// x: probabilities [..., classes]; label: class ids [..., 1], or probabilities if soft
VarRef cross_entropy(const VarRef& x, const VarRef& label, bool soft_label = false,
                     Where where = Where::current());
/// As cross_entropy(), with logits in place of probabilities.
VarRef softmax_with_cross_entropy(const VarRef& logits, const VarRef& label,
                                  bool soft_label = false, Where where = Where::current());
/// Loss per element, with x a logit and label a probability of the same shape.
VarRef sigmoid_cross_entropy_with_logits(const VarRef& x, const VarRef& label,
                                         Where where = Where::current());
/// (x - y)^2
VarRef square_error_cost(const VarRef& x, const VarRef& y, Where where = Where::current());
/// Fraction of rows whose label is among the k largest values.
VarRef accuracy(const VarRef& x, const VarRef& label, int32_t k = 1,
                Where where = Where::current());
/// Mean of all elements.
VarRef mean(const VarRef& x, Where where = Where::current());

// ---- arithmetic

/// Any op with one input X and one output Out, by op type.
VarRef unary(const std::string& type, const VarRef& x, Where where = Where::current());
/// Functions of each element; the result has the shape of x.
VarRef relu(const VarRef& x, Where where = Where::current());
VarRef sigmoid(const VarRef& x, Where where = Where::current());
VarRef tanh(const VarRef& x, Where where = Where::current());
VarRef square(const VarRef& x, Where where = Where::current());
VarRef exp(const VarRef& x, Where where = Where::current());
VarRef log(const VarRef& x, Where where = Where::current());
VarRef sqrt(const VarRef& x, Where where = Where::current());
VarRef abs(const VarRef& x, Where where = Where::current());
VarRef gelu(const VarRef& x, Where where = Where::current());
/// Softmax along one dim; -1: the last.
VarRef softmax(const VarRef& x, int32_t axis = -1, Where where = Where::current());

/// y is broadcast to x starting at dim `axis`; -1: aligned with the last dims.
VarRef elementwise_add(const VarRef& x, const VarRef& y, int32_t axis = -1,
                       Where where = Where::current());
VarRef elementwise_sub(const VarRef& x, const VarRef& y, int32_t axis = -1,
                       Where where = Where::current());
VarRef elementwise_mul(const VarRef& x, const VarRef& y, int32_t axis = -1,
                       Where where = Where::current());
VarRef elementwise_div(const VarRef& x, const VarRef& y, int32_t axis = -1,
                       Where where = Where::current());
VarRef elementwise_max(const VarRef& x, const VarRef& y, int32_t axis = -1,
                       Where where = Where::current());
VarRef elementwise_min(const VarRef& x, const VarRef& y, int32_t axis = -1,
                       Where where = Where::current());

/// Options of matmul().
struct MatmulOptions {
  bool transpose_x = false;  ///< the last two dims of x
  bool transpose_y = false;  ///< the last two dims of y
  double alpha = 1.0;        ///< factor of the result
};
/// Products of the matrices in the last two dims; leading dims are a batch.
VarRef matmul(const VarRef& x, const VarRef& y, const MatmulOptions& options = {},
              Where where = Where::current());
/// x * factor + bias
VarRef scale(const VarRef& x, double factor, double bias = 0, Where where = Where::current());
/// Sum of vars with equal shapes.
VarRef sums(const Vars& xs, Where where = Where::current());
/// Sum (reduce_mean(): mean) over the given dims; none: over all.
VarRef reduce_sum(const VarRef& x, std::vector<int32_t> dims = {}, bool keep_dim = false,
                  Where where = Where::current());
VarRef reduce_mean(const VarRef& x, std::vector<int32_t> dims = {}, bool keep_dim = false,
                   Where where = Where::current());

// ---- shapes

/// Joins vars along a dim; all other dims must be equal.
VarRef concat(const Vars& xs, int32_t axis = 0, Where where = Where::current());
/// One dim may be -1 (inferred); a dim of 0 is copied from x.
VarRef reshape(const VarRef& x, std::vector<int32_t> shape, Where where = Where::current());
/// \param order  dim i of the result is dim order[i] of x
VarRef transpose(const VarRef& x, std::vector<int32_t> order, Where where = Where::current());
/// Converts the elements; floats are truncated towards zero for integers.
VarRef cast(const VarRef& x, DType dtype, Where where = Where::current());

// ---- values and control flow

/// A new var with that value in all elements.
VarRef fill_constant(Network& net, std::vector<int64_t> shape, DType dtype, double value,
                     Where where = Where::current());
/// Copies x to `to`, which must exist; without `to`, to a new var.
VarRef assign(const VarRef& x, const VarRef& to = {}, Where where = Where::current());
/// x + step, in place
VarRef increment(const VarRef& x, double step = 1, Where where = Where::current());
/// Writes the result to `to` if given.
VarRef less_than(const VarRef& x, const VarRef& y, const VarRef& to = {},
                 Where where = Where::current());
/// Runs the ops of body while condition (one bool) is true. body must update condition. To pass
/// results out of the loop, body must write them to vars from outside with assign(), increment(),
/// less_than() or array_write().
void while_loop(const VarRef& condition, const std::function<void()>& body,
                Where where = Where::current());
/// The result of one of two branches. Their results must have the same shape and type.
VarRef cond(const VarRef& condition, const std::function<VarRef()>& if_true,
            const std::function<VarRef()>& if_false, Where where = Where::current());
/// What the body of recurrent() returns for one time step.
struct RecurrentStep {
  VarRef state;  ///< for the next time step; no other op of the body may read this var
  VarRef out;    ///< result of this time step
};
/// Runs body for each time step, that is, each index of dim 0 of the sequences, which must have
/// equal lengths. body receives the elements of the time step and the state, which is `start` in
/// the first time step.
/// \returns the states and the outs of all time steps, stacked along a new dim 0
std::pair<VarRef, VarRef> recurrent(
    const Vars& sequences, const VarRef& start,
    const std::function<RecurrentStep(const Vars& elements, const VarRef& state)>& body,
    Where where = Where::current());
/// Stores x at index i of an array; creates the array if it is not given.
VarRef array_write(const VarRef& x, const VarRef& i, const VarRef& array = {},
                   Where where = Where::current());
/// Element i of an array; i is one int64, as in array_write().
VarRef array_read(const VarRef& array, const VarRef& i, Where where = Where::current());

// ---- any op

/// The types of attributes that append() can set.
using AttrArg = std::variant<bool, int32_t, int64_t, float, std::string, std::vector<int32_t>,
                             std::vector<int64_t>, std::vector<float>, std::vector<std::string>>;
/// A call of any op, for ops without a function here. Missing attributes have the defaults of the
/// op (docs/ops.md).
struct OpCall {
  std::string type;
  std::vector<std::pair<std::string, Vars>> inputs = {};
  std::vector<std::string> outputs = {};  ///< output slots; each gets one new var
  std::vector<std::pair<std::string, AttrArg>> attrs = {};
  std::string kind = {};  ///< vars are named "<kind>_<n>.tmp_<m>"; empty: the op type
};
/// \returns one var per output slot
Vars append(Network& net, const OpCall& call, Where where = Where::current());

}  // namespace millrace::layers
