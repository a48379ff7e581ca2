// Sequences with LoD, and recurrent layers.

#include "interchange/pir/rows.h"

namespace millrace::interchange::pir {
namespace {

constexpr Row kSequenceRows[] = {
    {"add_position_encoding", "add_position_encoding", "X", "alpha:f32 beta:f32", "Out"},
    {"chunk_eval", "chunk_eval", "Inference Label SeqLength?",
     "num_chunk_types:i32 chunk_scheme:str excluded_chunk_types:i32s",
     "Precision Recall F1-Score NumInferChunks NumLabelChunks NumCorrectChunks"},
    {"crf_decoding", "crf_decoding", "Emission Transition Label? Length?", "", "ViterbiPath"},
    {"ctc_align", "ctc_align", "Input InputLength?",
     "blank:i32 merge_repeated:bool padding_value:i32", "Output OutputLength"},
    {"edit_distance", "edit_distance", "Hyps Refs HypsLength? RefsLength?", "normalized:bool",
     "SequenceNum Out"},
    {"gru", "gru", "Input H0? Weight Bias?",
     "activation:str gate_activation:str is_reverse:bool origin_mode:bool is_test:bool=false",
     "BatchGate BatchResetHiddenPrev BatchHidden Hidden"},
    {"gru_unit", "gru_unit", "Input HiddenPrev Weight Bias?",
     "activation:i32 gate_activation:i32 origin_mode:bool", "Gate ResetHiddenPrev Hidden"},
    {"hash", "hash", "X",
     "num_hash:i32 mod_by:i64 runtime_shape:bool=false !@ALL_KERNELS_MUST_COMPUTE_RUNTIME_SHAPE@",
     "Out"},
    {"im2sequence", "im2sequence", "X Y?",
     "kernels:i32s strides:i32s paddings:i32s out_stride:i32s", "Out"},
    {"lstm", "lstm", "Input H0? C0? Weight Bias?",
     "use_peepholes:bool is_reverse:bool is_test:bool=false gate_activation:str "
     "cell_activation:str "
     "candidate_activation:str",
     "Hidden Cell BatchGate BatchCellPreAct"},
    {"sequence_conv", "sequence_conv", "X PaddingData? Filter",
     "context_length<contextLength:i32 padding_trainable<paddingTrainable:bool "
     "context_start<contextStart:i32 context_stride<contextStride:i32",
     "Out"},
    {"sequence_expand", "sequence_expand", "X Y", "ref_level:i32", "Out"},
    {"sequence_mask", "sequence_mask", "X @maxlen:i32|MaxLenTensor", "out_dtype:dtype", "Y"},
    {"sequence_pool", "sequence_pool", "X", "is_test:bool=false pooltype:str pad_value:f32",
     "Out MaxIndex"},
    {"sequence_softmax", "sequence_softmax", "X", "!data_format", "Out"},
};

// A stack of layers over padded sequences. Dropout between layers is for training.
Status rnn(OpContext& c) {
  const auto probability = c.attr<float>("dropout_prob");
  const bool is_test = c.attr<bool>("is_test");
  if (!is_test && probability > 0) return c.refuse("rnn with dropout draws random numbers");
  const std::vector<Value> states = c.ins("PreState");
  std::vector<Value> results = {result_of(c.out_type("Out")), result_of({.dtype = DType::kUint8})};
  std::vector<TensorType> types;
  for (size_t k = 0; k < states.size(); ++k) types.push_back(c.out_type("State", k));
  results.push_back(results_of(types));
  results.push_back(result_of(TensorType{}));
  const Value state_list = c.list(states);
  const Value weights = c.list(c.ins("WeightList"));
  results = c.nodes(
      "rnn",
      {c.in("Input"), state_list, weights, c.in_or_none("SequenceLength"),
       c.full(0, DType::kUint8, {0}, /*on_host=*/false)},
      {of_f32("dropout_prob", probability), of_bool("is_bidirec", c.attr<bool>("is_bidirec")),
       of_i32("input_size", c.attr<int64_t>("input_size")),
       of_i32("hidden_size", c.attr<int64_t>("hidden_size")),
       of_i32("num_layers", c.attr<int64_t>("num_layers")),
       of_string("mode", c.attr<std::string>("mode")), of_i32("seed", c.attr<int64_t>("seed")),
       of_bool("is_test", is_test)},
      std::move(results));
  c.set("Out", results[0]);
  const std::vector<Value> last = c.parts(results[2]);
  for (size_t k = 0; k < last.size(); ++k) c.set("State", last[k], k);
  return Ok();
}

// Release 3.3.1 reads the second operand and refuses an empty list, whichever of them it needs. The
// operand has precedence there as well.
Status lod_reset(OpContext& c) {
  std::vector<int64_t> offsets = c.ints("target_lod");
  const Value x = c.in("X");
  Value y;
  if (c.has("Y")) {
    y = c.in("Y");
    offsets = {0, 1};
  } else {
    y = c.node("assign_value", {},
               {of_i32s("shape", {static_cast<int64_t>(offsets.size())}),
                of_dtype("dtype", DType::kInt32), of_i32s("values", offsets), of_place(false)},
               {.dtype = DType::kInt32, .dims = {static_cast<int64_t>(offsets.size())}});
  }
  c.set("Out", c.node("lod_reset", {x, y},
                      {of_i32s("target_lod", offsets), of_bool("append", c.attr<bool>("append"))},
                      c.out_type("Out")));
  return Ok();
}

}  // namespace

void add_sequence_ops(Converters& table) {
  for (const Row& row : kSequenceRows) table.rows[row.type] = &row;
  table.functions["lod_reset"] = lod_reset;
  table.functions["rnn"] = rnn;
}

}  // namespace millrace::interchange::pir
