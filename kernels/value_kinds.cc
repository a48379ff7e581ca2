#include "kernels/value_kinds.h"

#include <algorithm>
#include <iterator>

namespace millrace::kernels {
namespace {

struct Entry {
  llvm::StringLiteral op;
  llvm::StringLiteral slot;  ///< "*": every slot
};

// In alphabetical order.
constexpr Entry kEntries[] = {
    {"abs", "X"},
    {"adadelta", "Grad"},
    {"adagrad", "Grad"},
    {"adam", "Grad"},
    {"adamax", "Grad"},
    {"adamw", "Grad"},
    {"array_to_lod_tensor", "*"},
    {"assert", "Data"},
    {"assign", "X"},
    {"cast", "X"},
    {"clip", "X"},
    {"clip_by_norm", "X"},
    {"decayed_adagrad", "Grad"},
    {"dpsgd", "Grad"},
    {"elementwise_add", "X"},
    {"elementwise_div", "X"},
    {"elementwise_max", "X"},
    {"elementwise_min", "X"},
    {"elementwise_mul", "X"},
    {"elementwise_pow", "X"},
    {"elementwise_sub", "X"},
    {"exchange_begin", "X"},
    {"exchange_end", "X"},
    {"fill_any_like", "X"},
    {"fill_zeros_like", "X"},
    {"fill_zeros_like2", "X"},
    {"ftrl", "Grad"},
    {"get_tensor_from_selected_rows", "X"},
    {"isfinite", "X"},
    {"isinf", "X"},
    {"isnan", "X"},
    {"lamb", "Grad"},
    {"lars_momentum", "Grad"},
    {"lod_array_length", "X"},
    {"lod_tensor_to_array", "*"},
    {"lookup_table", "W"},
    {"lookup_table_grad", "W"},
    {"lookup_table_v2", "W"},
    {"lookup_table_v2_grad", "W"},
    {"max_sequence_len", "*"},
    {"merge_gradient", "*"},
    {"merge_lod_tensor", "*"},
    {"merge_lod_tensor_infer", "*"},
    {"merge_selected_rows", "X"},
    {"merged_momentum", "Grad"},
    {"momentum", "Grad"},
    {"print", "In"},
    {"proximal_adagrad", "Grad"},
    {"proximal_gd", "Grad"},
    {"read_from_array", "X"},
    {"reorder_lod_tensor_by_rank", "*"},
    {"reorder_lod_tensor_by_rank_grad", "*"},
    {"reverse", "X"},
    {"rmsprop", "Grad"},
    {"rnn_memory_helper", "X"},
    {"scale", "X"},
    {"select_input", "X"},
    {"select_output", "X"},
    {"sgd", "Grad"},
    {"shape", "Input"},
    {"shrink_rnn_memory", "*"},
    {"shrink_rnn_memory_grad", "*"},
    {"sign", "X"},
    {"slice", "Input"},
    {"slice_grad", "*"},
    {"split_ids", "Ids"},
    {"split_lod_tensor", "*"},
    {"split_selected_rows", "X"},
    {"sqrt", "X"},
    {"square", "X"},
    {"sum", "X"},
    {"tensor_array_to_tensor", "*"},
    {"tensor_array_to_tensor_grad", "*"},
    {"write_to_array", "*"},
};

}  // namespace

bool looks_at_kind(llvm::StringRef op_type, llvm::StringRef slot) {
  const Entry* const found =
      std::lower_bound(std::begin(kEntries), std::end(kEntries), op_type,
                       [](const Entry& entry, llvm::StringRef type) { return entry.op < type; });
  return found != std::end(kEntries) && found->op == op_type &&
         (found->slot == "*" || found->slot == slot);
}

}  // namespace millrace::kernels
