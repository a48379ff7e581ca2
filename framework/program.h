#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <llvm/ADT/STLExtras.h>
#include <llvm/ADT/StringRef.h>

#include "framework/block.h"
#include "framework/name_table.h"

namespace millrace {

/// One entry of the op version map.
struct OpVersion {
  std::string op;
  int32_t version = 0;
  bool operator==(const OpVersion&) const = default;
};

/// The IR of one serialized program: blocks, version fields and the names they use.
///
/// Movable through unique_ptr only (blocks point back). Thread-safety: concurrent readers, or one
/// writer.
class Program {
 public:
  Program() = default;
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;

  /// A program with an empty block 0.
  static std::unique_ptr<Program> create();

  [[nodiscard]] size_t block_count() const { return blocks_.size(); }
  [[nodiscard]] Block& block(size_t index) const { return *blocks_[index]; }
  [[nodiscard]] Block& root() const { return *blocks_[0]; }
  [[nodiscard]] auto blocks() const { return llvm::make_pointee_range(blocks_); }
  Block& add_block(int32_t parent);
  /// Removes all blocks from the given index on.
  void truncate_blocks(size_t count);
  /// Removes the blocks whose entry is false and renumbers the others, their parent and forward
  /// blocks, and the block attributes of all ops. Block 0 must stay; references to a removed block
  /// become -1. \param keep  one entry a block
  void retain_blocks(llvm::ArrayRef<bool> keep);

  [[nodiscard]] NameTable& names() { return names_; }
  [[nodiscard]] const NameTable& names() const { return names_; }

  /// Version message; present without a number is possible in a file.
  [[nodiscard]] bool has_version() const { return has_version_; }
  [[nodiscard]] std::optional<int64_t> version() const { return version_; }
  void set_version(bool present, std::optional<int64_t> version);
  [[nodiscard]] bool has_op_versions() const { return has_op_versions_; }
  [[nodiscard]] llvm::ArrayRef<OpVersion> op_versions() const { return op_versions_; }
  void set_op_versions(bool present, std::vector<OpVersion> versions);
  /// Wire bytes of top-level fields that the format does not know (old version fields 2 and 3, for
  /// example).
  [[nodiscard]] const std::shared_ptr<const std::string>& unknown() const { return unknown_; }
  void set_unknown(std::shared_ptr<const std::string> bytes);

  /// Deep copy. Name ids stay the same, and so does the pristine state.
  [[nodiscard]] std::unique_ptr<Program> clone() const;

  /// Replaces everything by a deep copy of another program. Ops, vars and blocks of this one are
  /// gone.
  void replace_with(const Program& other);

  /// Bytes the program was read from while nothing has been edited since; null otherwise.
  [[nodiscard]] const std::string* pristine_bytes() const {
    return pristine_ ? source_.get() : nullptr;
  }
  /// Hands over the bytes that wire() slices point into and marks the program pristine; for the
  /// reader of files.
  void set_source(std::shared_ptr<const std::string> bytes);
  /// Says that something changed. Every edit calls this.
  void touch() {
    pristine_ = false;
    ++edits_;
  }
  /// Counts edits; equal numbers mean that nothing was edited in between.
  [[nodiscard]] uint64_t edits() const { return edits_; }

 private:
  void copy_blocks(const Program& from, bool same_ids);

  NameTable names_;
  std::vector<std::unique_ptr<Block>> blocks_;
  bool has_version_ = false;
  std::optional<int64_t> version_;
  bool has_op_versions_ = false;
  std::vector<OpVersion> op_versions_;
  std::shared_ptr<const std::string> unknown_;
  std::shared_ptr<const std::string> source_;
  bool pristine_ = false;
  uint64_t edits_ = 0;
};

}  // namespace millrace
