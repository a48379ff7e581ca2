#pragma once

#include <bit>
#include <cstdint>

#include "kernels/kernel.h"

namespace millrace::kernels {

/// A binary tree whose leaves are classes and whose inner nodes are rows of a weight. Either the
/// complete tree over the classes, or paths that the program lists for each row of the input.
/// Used by hierarchical_sigmoid. Does not own the labels and lists.
class ClassTree {
 public:
  /// The complete tree.
  /// \param classes  at least 2
  /// \param labels   class of each row of the input, in [0, classes)
  ClassTree(int64_t classes, const int64_t* labels) : classes_(classes), labels_(labels) {
    width_ = std::bit_width(static_cast<uint64_t>(classes - 1));
  }
  /// Listed paths: row i has the nodes table[i * width, ...) up to the first negative one, and the
  /// branches taken there.
  /// \param width  length of the longest path; table and code are [rows, width]
  ClassTree(const int64_t* table, const int64_t* code, int64_t width)
      : table_(table), code_(code), width_(width) {}

  /// Length of the longest path.
  [[nodiscard]] int64_t width() const { return width_; }

  /// Calls fn(j, node, taken) for every node of the path of row i; taken is the branch.
  /// Nodes are visited from the leaf upwards in the complete tree, in listed order otherwise; node
  /// is a row of the weight.
  template <typename Fn>
  void each_node(int64_t i, Fn&& fn) const {
    if (table_ != nullptr) {
      for (int64_t j = 0; j < width_ && table_[i * width_ + j] >= 0; ++j)
        fn(j, table_[i * width_ + j], code_[i * width_ + j] != 0);
      return;
    }
    // leaves are numbered from `classes` upwards, the root is 1, the parent of n is n / 2
    const auto leaf = static_cast<uint64_t>(labels_[i] + classes_);
    const auto length = static_cast<int64_t>(std::bit_width(leaf)) - 1;
    for (int64_t j = 0; j < length; ++j)
      fn(j, static_cast<int64_t>(leaf >> static_cast<unsigned>(j + 1)) - 1,
         (leaf >> static_cast<unsigned>(j) & 1U) != 0);
  }

 private:
  int64_t classes_ = 0;              ///< leaves of the tree
  const int64_t* labels_ = nullptr;  ///< null with listed paths
  const int64_t* table_ = nullptr;   ///< null with the complete tree
  const int64_t* code_ = nullptr;    ///< branch at each node of table_
  int64_t width_ = 0;
};

}  // namespace millrace::kernels
