#pragma once

#include <string>

#include "interchange/onnx/op_context.h"

/// Sequences of different length: rows of a [total, ...] tensor with offsets, and padded forms.
namespace millrace::interchange {

/// The parts of a batch of sequences. All are int64 values of the graph; n is the number of
/// sequences, t the length of the longest one.
struct Sequences {
  std::string offsets;  ///< [n + 1]
  std::string starts;   ///< [n], row of the first element
  std::string lengths;  ///< [n]
  std::string longest;  ///< [1], at least 1
  std::string steps;    ///< [t], 0, 1, ...
};
Sequences read_sequences(OpContext& c, llvm::StringRef slot);

/// [t, n], the rows of step i of each sequence; past its end, a row that exists.
std::string padded_rows(OpContext& c, const Sequences& s, const std::string& values);

/// [total], for each row its index in a flattened [t, n] array.
std::string flat_positions(OpContext& c, const Sequences& s, const std::string& values);

}  // namespace millrace::interchange
