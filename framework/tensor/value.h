#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "framework/tensor/tensor.h"
#include "framework/types.h"

namespace millrace {

class Scope;

/// Some rows of a [height, ...] tensor: row i of `value` belongs to row rows[i]. A row may occur
/// more than once; its values are then added.
struct SelectedRows {
  std::vector<int64_t> rows;  ///< row numbers, in any order
  int64_t height = 0;         ///< rows of the whole tensor
  Tensor value;               ///< dim 0 is rows.size()
};

/// LOD_TENSOR_ARRAY: grows on write. Elements that were never written are not initialized.
using TensorArray = std::vector<Tensor>;

/// LOD_RANK_TABLE: the sequences of a LoD level in order of decreasing length; ties keep their
/// order.
struct RankTable {
  struct Item {
    int64_t index = 0;   ///< index of the sequence in its level
    int64_t length = 0;  ///< number of entries of the next level
  };
  Lod coarse_lod;           ///< levels above the ranked one
  std::vector<Item> items;  ///< longest sequence first
};

/// STEP_SCOPES: the scopes of the runs of a sub-block, kept for its gradient.
using StepScopes = std::vector<std::shared_ptr<Scope>>;

/// STRINGS; also feed and fetch lists.
using Strings = std::vector<std::string>;

/// The content of a var at run time; nothing until it is set. Movable only.
class Value {
 public:
  Value() = default;
  Value(Value&&) noexcept = default;
  Value& operator=(Value&&) noexcept = default;
  Value(const Value&) = delete;
  Value& operator=(const Value&) = delete;
  ~Value();

  /// True if the content is a T (or, for std::monostate, nothing).
  template <typename T>
  [[nodiscard]] bool holds() const {
    return std::holds_alternative<T>(payload_);
  }
  /// The content as T; null if it is something else.
  template <typename T>
  [[nodiscard]] T* get_if() {
    return std::get_if<T>(&payload_);
  }
  template <typename T>
  [[nodiscard]] const T* get_if() const {
    return std::get_if<T>(&payload_);
  }
  /// The content as T. Other content is replaced by an empty T.
  template <typename T>
  [[nodiscard]] T& as() {
    if (T* const held = std::get_if<T>(&payload_)) return *held;
    return payload_.emplace<T>();
  }
  /// True if there is content to read: a tensor with memory, or content of another kind.
  [[nodiscard]] bool initialized() const;
  /// Kind of the content; kRaw if there is none.
  [[nodiscard]] VarKind kind() const;
  /// Drops the content.
  void clear();

 private:
  std::variant<std::monostate, Tensor, SelectedRows, TensorArray, RankTable, StepScopes, Strings>
      payload_;
};

/// A deep copy. Errors: kInternal for step scopes, which cannot be copied; kResource.
StatusOr<Value> clone(const Value& value);

/// "f32 [2, 3]", "selected rows ...", for messages.
std::string describe(const Value& value);

}  // namespace millrace
