#pragma once

#include <llvm/ADT/ArrayRef.h>

#include "kernels/kernel.h"
#include "kernels/registry.h"

namespace millrace::kernels {

/// Offsets of the innermost LoD level, which cover the rows of the tensor. Errors: kExecution if
/// the tensor has no LoD or the offsets do not end at the last row; slot is the name of the input
/// for the message.
StatusOr<llvm::ArrayRef<int64_t>> sequences_of(const Tensor& tensor, const char* slot);

/// A copy of a LoD with the last level replaced.
Lod with_last_level(const Lod& lod, LodLevel level);

// Kernels of ops/sequence, one function per file.
/// beam_search and beam_search_decode.
void add_beam_search_kernels(KernelRegistry& registry);
void add_chunk_eval_kernel(KernelRegistry& registry);
void add_ctc_align_kernel(KernelRegistry& registry);
void add_edit_distance_kernel(KernelRegistry& registry);
void add_fused_sequence_kernels(KernelRegistry& registry);
/// linear_chain_crf and crf_decoding.
void add_linear_chain_crf_kernels(KernelRegistry& registry);
void add_sequence_conv_kernels(KernelRegistry& registry);
void add_sequence_expand_kernels(KernelRegistry& registry);
void add_sequence_move_kernels(KernelRegistry& registry);
void add_sequence_pad_kernels(KernelRegistry& registry);
void add_sequence_pool_kernels(KernelRegistry& registry);
void add_sequence_softmax_kernels(KernelRegistry& registry);
void add_sequence_token_kernels(KernelRegistry& registry);
void add_sequence_topk_kernels(KernelRegistry& registry);
void add_warpctc_kernels(KernelRegistry& registry);

}  // namespace millrace::kernels
