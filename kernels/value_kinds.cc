#include "kernels/value_kinds.h"

#include <algorithm>
#include <iterator>

namespace millrace::kernels {
namespace {

constexpr AcceptedKinds kRows{.rows = true};
constexpr AcceptedKinds kArrays{.arrays = true};
constexpr AcceptedKinds kAll{.rows = true, .arrays = true, .others = true};

struct Entry {
  llvm::StringLiteral op;
  llvm::StringLiteral slot;  ///< "*": every slot
  AcceptedKinds kinds;
};

// In alphabetical order.
constexpr Entry kEntries[] = {
    {"abs", "X", kRows},
    {"adadelta", "Grad", kRows},
    {"adagrad", "Grad", kRows},
    {"adam", "Grad", kRows},
    {"adamax", "Grad", kRows},
    {"adamw", "Grad", kRows},
    {"array_to_lod_tensor", "*", kAll},
    {"assert", "Data", kAll},
    {"assign", "X", kAll},
    {"beam_search_decode", "*", kArrays},
    {"cast", "X", kRows},
    {"clip", "X", kRows},
    {"clip_by_norm", "X", kRows},
    {"decayed_adagrad", "Grad", kRows},
    {"dpsgd", "Grad", kRows},
    {"elementwise_add", "X", kRows},
    {"elementwise_div", "X", kRows},
    {"elementwise_max", "X", kRows},
    {"elementwise_min", "X", kRows},
    {"elementwise_mul", "X", kRows},
    {"elementwise_pow", "X", kRows},
    {"elementwise_sub", "X", kRows},
    {"exchange_begin", "X", kAll},
    {"exchange_end", "X", kAll},
    {"fill_any_like", "X", kAll},
    {"fill_zeros_like", "X", kAll},
    {"fill_zeros_like2", "X", kAll},
    {"ftrl", "Grad", kRows},
    {"get_tensor_from_selected_rows", "X", kRows},
    {"isfinite", "X", kRows},
    {"isinf", "X", kRows},
    {"isnan", "X", kRows},
    {"lamb", "Grad", kRows},
    {"lars_momentum", "Grad", kRows},
    {"lod_array_length", "X", kAll},
    {"lod_tensor_to_array", "RankTable", kAll},
    {"lookup_sparse_table", "W", kRows},
    {"lookup_sparse_table_grad_split", "Grad", kRows},
    {"lookup_table", "W", kRows},
    {"lookup_table_grad", "W", kRows},
    {"lookup_table_v2", "W", kRows},
    {"lookup_table_v2_grad", "W", kRows},
    {"max_sequence_len", "*", kAll},
    {"merge_gradient", "*", kAll},
    {"merge_selected_rows", "X", kRows},
    {"merged_adam", "Grad", kRows},
    {"merged_momentum", "Grad", kRows},
    {"merged_sgd", "Grad", kRows},
    {"momentum", "Grad", kRows},
    {"print", "In", kAll},
    {"proximal_adagrad", "Grad", kRows},
    {"proximal_gd", "Grad", kRows},
    {"read_from_array", "X", kAll},
    {"reorder_lod_tensor_by_rank", "*", kAll},
    {"reorder_lod_tensor_by_rank_grad", "*", kAll},
    {"reverse", "X", kArrays},
    {"rmsprop", "Grad", kRows},
    {"rnn_memory_helper", "X", kAll},
    {"scale", "X", kRows},
    {"select_input", "X", kAll},
    {"select_output", "X", kAll},
    {"sgd", "*", kRows},
    {"shape", "Input", kRows},
    {"shrink_rnn_memory", "RankTable", kAll},
    {"sign", "X", kRows},
    {"slice", "Input", kArrays},
    {"slice_grad", "*", kArrays},
    {"split_ids", "Ids", kRows},
    {"split_selected_rows", "X", kRows},
    {"sqrt", "X", kRows},
    {"square", "X", kRows},
    {"sum", "X", kAll},
    {"tensor_array_to_tensor", "*", kAll},
    {"tensor_array_to_tensor_grad", "*", kAll},
};

}  // namespace

AcceptedKinds accepted_kinds(llvm::StringRef op_type, llvm::StringRef slot) {
  const Entry* const found =
      std::lower_bound(std::begin(kEntries), std::end(kEntries), op_type,
                       [](const Entry& entry, llvm::StringRef type) { return entry.op < type; });
  const bool fits = found != std::end(kEntries) && found->op == op_type &&
                    (found->slot == "*" || found->slot == slot);
  return fits ? found->kinds : AcceptedKinds{};
}

}  // namespace millrace::kernels
