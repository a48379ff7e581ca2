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
/// A file states it for op types whose meaning has changed since their first version.
struct OpVersion {
  std::string op;  ///< op type
  int32_t version = 0;
  bool operator==(const OpVersion&) const = default;
};

/// The IR of one serialized program: blocks, version fields and the interned names.
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

  /// Blocks by index; block 0 is the root.
  [[nodiscard]] size_t block_count() const { return blocks_.size(); }
  [[nodiscard]] Block& block(size_t index) const { return *blocks_[index]; }
  [[nodiscard]] Block& root() const { return *blocks_[0]; }
  [[nodiscard]] auto blocks() const { return llvm::make_pointee_range(blocks_); }
  /// Appends an empty block. \param parent  index of the enclosing block; -1: none
  Block& add_block(int32_t parent);
  /// Removes all blocks with index >= count.
  void truncate_blocks(size_t count);
  /// Removes the blocks whose entry in `keep` is false and renumbers the others, including parent
  /// and forward indices and the block attributes of all ops. Block 0 must be kept; references to a
  /// removed block become -1.
  /// \param keep  one entry per block
  void retain_blocks(llvm::ArrayRef<bool> keep);

  /// The interned names of vars, op types, slots and attributes.
  [[nodiscard]] NameTable& names() { return names_; }
  [[nodiscard]] const NameTable& names() const { return names_; }

  /// Whether the file has a version message; it may be present without a number.
  [[nodiscard]] bool has_version() const { return has_version_; }
  /// Version of the release that wrote the file: 1006001 is 1.6.1 (version_text()).
  [[nodiscard]] std::optional<int64_t> version() const { return version_; }
  void set_version(bool present, std::optional<int64_t> version);
  /// Whether the file has an op version map; it may be present and empty.
  [[nodiscard]] bool has_op_versions() const { return has_op_versions_; }
  [[nodiscard]] llvm::ArrayRef<OpVersion> op_versions() const { return op_versions_; }
  void set_op_versions(bool present, std::vector<OpVersion> versions);
  /// Wire bytes of top-level fields that the format does not define (for example the old version
  /// fields 2 and 3).
  [[nodiscard]] const std::shared_ptr<const std::string>& unknown() const { return unknown_; }
  void set_unknown(std::shared_ptr<const std::string> bytes);

  /// Deep copy. Name ids stay the same; the copy of a pristine program is pristine.
  [[nodiscard]] std::unique_ptr<Program> clone() const;

  /// Replaces the whole content by a deep copy of another program. References to ops, vars and
  /// blocks of this program become invalid.
  void replace_with(const Program& other);

  /// The bytes that the program was read from, if it has not been edited since; else null.
  [[nodiscard]] const std::string* pristine_bytes() const {
    return pristine_ ? source_.get() : nullptr;
  }
  /// Takes the bytes that wire() refers to and marks the program pristine; for the file readers.
  void set_source(std::shared_ptr<const std::string> bytes);
  /// Marks the program as edited. Every edit calls this.
  void touch() {
    pristine_ = false;
    ++edits_;
  }
  /// Counts edits; equal numbers mean that nothing was edited in between.
  [[nodiscard]] uint64_t edits() const { return edits_; }

 private:
  /// \param same_ids  the name table is already a copy of the other's
  void copy_blocks(const Program& from, bool same_ids);

  NameTable names_;
  std::vector<std::unique_ptr<Block>> blocks_;
  bool has_version_ = false;
  std::optional<int64_t> version_;
  bool has_op_versions_ = false;
  std::vector<OpVersion> op_versions_;
  std::shared_ptr<const std::string> unknown_;
  /// The bytes that wire() of ops and vars refers to; null for a program that was not read from
  /// bytes.
  std::shared_ptr<const std::string> source_;
  bool pristine_ = false;
  uint64_t edits_ = 0;
};

}  // namespace millrace
