#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include <llvm/ADT/ArrayRef.h>
#include <llvm/ADT/SmallVector.h>
#include <llvm/ADT/StringRef.h>
#include <llvm/ADT/ilist_node.h>

#include "framework/name_table.h"
#include "framework/types.h"

namespace millrace {

class Block;

/// Dimensions of a tensor; -1 is a dimension that is unknown until run time.
using Dims = llvm::SmallVector<int64_t, 4>;

/// Which member of the wire message VarType describes the tensor. The numbers are its field
/// numbers.
enum class TensorForm : int32_t {
  kNone = 0,  ///< no tensor is described: readers, step scopes, raw vars
  kSelectedRows = 2,
  kLodTensor = 3,
  kTensorArray = 4,  ///< describes each tensor of the list
  kString = 8,
  kStrings = 9,
  kVocab = 10,
  kSparseCoo = 11,
  kSparseCsr = 12,
};

/// Everything that a declaration states about a var except its name. A plain value.
struct VarSpec {
  VarKind kind = VarKind::kLodTensor;
  TensorForm form = TensorForm::kNone;
  DType dtype = DType::kFloat32;        ///< meaningless if form is kNone
  Dims dims;                            ///< empty if form is kNone, and for a tensor of rank 0
  std::optional<int32_t> lod_level;     ///< number of LoD levels; absent counts as 0
  std::optional<bool> persistable;      ///< absent counts as false, also below
  std::optional<bool> need_check_feed;  ///< fed values must have the declared dims and dtype
  std::optional<bool> is_parameter;     ///< stated by newer releases
  std::optional<bool> stop_gradient;    ///< no gradient is computed for it
  /// Encoded wire fields of VarType (reader, tuple, unknown) and of VarDesc (attrs, unknown); null
  /// if none.
  std::shared_ptr<const std::string> type_extra;
  std::shared_ptr<const std::string> extra;  ///< of VarDesc

  /// Dense tensor of the given element type, dims and LoD level 0.
  static VarSpec tensor(DType dtype, llvm::ArrayRef<int64_t> dims);
  /// Declaration without shape, as used for control variables: no tensor description.
  /// \param kind  stated in the declaration
  static VarSpec shapeless(VarKind kind);

  /// True if the declaration describes a tensor, so that dtype and dims mean something.
  [[nodiscard]] bool has_tensor() const { return form != TensorForm::kNone; }
  bool operator==(const VarSpec& other) const;
};

/// A declared variable of one block. Owned by the block; its address is stable.
class Var : public llvm::ilist_node<Var> {
 public:
  Var(const Var&) = delete;
  Var& operator=(const Var&) = delete;

  /// Facts of the declaration; absent flags and levels have their defaults.
  [[nodiscard]] llvm::StringRef name() const;
  [[nodiscard]] NameId id() const { return name_; }
  [[nodiscard]] Block& block() const { return *block_; }
  [[nodiscard]] const VarSpec& spec() const { return spec_; }

  [[nodiscard]] VarKind kind() const { return spec_.kind; }
  [[nodiscard]] DType dtype() const { return spec_.dtype; }
  [[nodiscard]] llvm::ArrayRef<int64_t> dims() const { return spec_.dims; }
  [[nodiscard]] int32_t lod_level() const { return spec_.lod_level.value_or(0); }
  [[nodiscard]] bool persistable() const { return spec_.persistable.value_or(false); }
  [[nodiscard]] bool is_parameter() const { return spec_.is_parameter.value_or(false); }
  [[nodiscard]] bool stop_gradient() const { return spec_.stop_gradient.value_or(false); }

  /// Replaces the declaration.
  void set_spec(VarSpec spec);
  /// Change one fact of the declaration.
  void set_dims(llvm::ArrayRef<int64_t> dims);
  void set_persistable(bool value);

  /// Wire bytes that this var was read from; empty after an edit.
  [[nodiscard]] llvm::StringRef wire() const { return wire_; }

 private:
  friend class Block;
  Var(Block* block, NameId name, VarSpec spec)
      : block_(block), name_(name), spec_(std::move(spec)) {}
  /// Marks var and program as edited: the wire bytes are dropped.
  void touch();

  Block* block_;          ///< owner
  NameId name_;           ///< in the name table of the program
  VarSpec spec_;          ///< the declaration
  llvm::StringRef wire_;  ///< points into the file that the program keeps
};

/// Number of elements; -1 if a dim is unknown, nullopt if a dim is below -1 or the product
/// overflows.
std::optional<int64_t> element_count(llvm::ArrayRef<int64_t> dims);

}  // namespace millrace
