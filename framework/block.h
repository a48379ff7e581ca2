#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include <llvm/ADT/DenseMap.h>
#include <llvm/ADT/STLExtras.h>
#include <llvm/ADT/SmallVector.h>
#include <llvm/ADT/StringRef.h>
#include <llvm/ADT/simple_ilist.h>

#include "framework/op.h"
#include "framework/var.h"

namespace millrace {

class Program;

/// A list of ops in execution order and the vars declared for them. Owned by its Program.
///
/// For every name that its ops mention, the block keeps an index of the ops that read and write it.
/// The first query builds the index; concurrent readers may trigger this safely. After that, each
/// edit of an op updates it in O(arguments). Ops of sub-blocks are not in the index of the outer
/// block.
class Block {
 public:
  using OpList = llvm::simple_ilist<Op>;
  using VarList = llvm::simple_ilist<Var>;

  Block(const Block&) = delete;
  Block& operator=(const Block&) = delete;
  ~Block();

  [[nodiscard]] Program& program() const { return *program_; }
  /// Position in the program.
  [[nodiscard]] int32_t index() const { return index_; }
  /// Index stated in the file; equals index() in a valid program.
  [[nodiscard]] int32_t stated_index() const { return stated_index_; }
  /// Index of the enclosing block; -1 for block 0.
  [[nodiscard]] int32_t parent() const { return parent_; }
  /// Edits of the header fields of the block.
  void set_parent(int32_t parent);
  void set_stated_index(int32_t index);
  /// Block whose gradient this block computes; absent or -1 if it computes none.
  [[nodiscard]] std::optional<int32_t> forward_block() const { return forward_block_; }
  void set_forward_block(std::optional<int32_t> index);
  /// Wire bytes of fields that the format does not define; null if none.
  [[nodiscard]] const std::shared_ptr<const std::string>& unknown() const { return unknown_; }
  void set_unknown(std::shared_ptr<const std::string> bytes);

  // ---- ops
  [[nodiscard]] auto ops() { return llvm::make_range(ops_.begin(), ops_.end()); }
  [[nodiscard]] auto ops() const { return llvm::make_range(ops_.begin(), ops_.end()); }
  /// Number of ops. Cost: O(1).
  [[nodiscard]] size_t op_count() const { return op_count_; }
  /// First and last op; the block must have one.
  [[nodiscard]] Op& front() { return ops_.front(); }
  [[nodiscard]] Op& back() { return ops_.back(); }
  /// Neighbours in block order; null at the ends.
  [[nodiscard]] Op* next(const Op& op) const;
  [[nodiscard]] Op* previous(const Op& op) const;
  /// All ops by index; valid until the next insertion or removal.
  [[nodiscard]] std::vector<Op*> op_vector();
  /// Position of an op; -1 for an op of another block. Cost: O(ops of the block).
  [[nodiscard]] int64_t index_of(const Op& op) const;

  /// Creates an op without slots and attributes: at the end, or next to `where`.
  /// insert_before(nullptr) appends; insert_before() with the first op prepends.
  Op& append_op(llvm::StringRef type) { return insert_before(nullptr, type); }
  Op& insert_before(Op* where, llvm::StringRef type);
  Op& insert_after(Op& where, llvm::StringRef type);
  /// Inserts a copy of an op of any program, including slots, attributes and unknown fields, before
  /// `where`; where = null appends.
  Op& clone_before(Op* where, const Op& other);
  Op& append_clone(const Op& other) { return clone_before(nullptr, other); }
  /// Unlinks and deletes the op.
  void erase(Op& op);

  // ---- vars
  [[nodiscard]] auto vars() { return llvm::make_range(vars_.begin(), vars_.end()); }
  [[nodiscard]] auto vars() const { return llvm::make_range(vars_.begin(), vars_.end()); }
  [[nodiscard]] size_t var_count() const { return var_count_; }
  /// Var declared in this block (not in its ancestors); null if there is none. If the name is
  /// declared repeatedly: the first declaration.
  [[nodiscard]] Var* find_var(llvm::StringRef name) const;
  [[nodiscard]] Var* find_var(NameId id) const;
  /// Var visible from this block: declared here, else in the nearest ancestor. Parent indices that
  /// are out of range end the search.
  [[nodiscard]] Var* find_var_recursive(llvm::StringRef name) const;
  /// Declares a var, or replaces the declaration of an existing one.
  Var& declare(llvm::StringRef name, VarSpec spec);
  /// Adds a declaration even if the name is already declared; only the file readers need this.
  Var& add_declaration(llvm::StringRef name, VarSpec spec);
  /// Deletes the declaration; uses of the name by ops stay.
  void erase(Var& var);
  /// Renames the declaration, if there is one, and every use by an op of this block. Attributes are
  /// not changed.
  void rename(llvm::StringRef from, llvm::StringRef to);

  // ---- readers and writers
  /// Ops of this block that read (write) the name, in block order, each once. Cost: O(k log k) for
  /// k uses.
  [[nodiscard]] llvm::SmallVector<Op*, 4> readers_of(llvm::StringRef name) const;
  [[nodiscard]] llvm::SmallVector<Op*, 4> writers_of(llvm::StringRef name) const;
  /// True if some op of this block reads (writes) the name. Cost: O(1).
  [[nodiscard]] bool has_readers(llvm::StringRef name) const;
  [[nodiscard]] bool has_writers(llvm::StringRef name) const;
  /// First writer in block order (last_writer(): last); null if there is none. Cost: O(number of
  /// writes).
  [[nodiscard]] Op* first_writer(llvm::StringRef name) const;
  [[nodiscard]] Op* last_writer(llvm::StringRef name) const;

  /// Attaches the wire bytes that an op or var was read from; for the file readers and for clone().
  static void set_wire(Op& op, llvm::StringRef bytes) { op.wire_ = bytes; }
  static void set_wire(Var& var, llvm::StringRef bytes) { var.wire_ = bytes; }

 private:
  friend class Op;
  friend class Program;
  friend class Var;

  /// One mention of a name: the op, the slot (inputs and outputs are counted apart) and the
  /// position in the slot.
  struct Use {
    Op* op;
    uint32_t slot;
    uint32_t arg;
  };
  using UseList = llvm::SmallVector<Use, 2>;
  /// All mentions of one name in the block, in no particular order.
  struct Uses {
    UseList reads;
    UseList writes;
  };

  Block(Program* program, int32_t index, int32_t parent)
      : program_(program), index_(index), stated_index_(index), parent_(parent) {}

  /// Marks the program as edited.
  void touch();
  Op& insert(OpList::iterator where, std::unique_ptr<Op> op);
  /// \param same_ids  the other op is of a program with the same name table
  Op& clone_with(Op* where, const Op& other, bool same_ids);
  /// Builds the index of readers and writers from all ops.
  void index_uses();
  /// Keep the index up to date when an op is inserted, changed or removed.
  void link_uses(Op& op);
  void link_slot(Op& op, bool is_output, uint32_t slot);
  void unlink_uses(Op& op);
  void unlink_slot_uses(Op& op, bool is_output);
  /// Gives a new op a number between those of its neighbours, for Op::comes_before(); renumber()
  /// spaces all numbers again when there is none left.
  void assign_order(Op& op);
  void renumber();
  [[nodiscard]] const Uses* uses_of(llvm::StringRef name) const;
  static llvm::SmallVector<Op*, 4> ordered(const UseList& uses);

  Program* program_;
  int32_t index_;
  int32_t stated_index_;
  int32_t parent_;
  std::optional<int32_t> forward_block_;
  std::shared_ptr<const std::string> unknown_;
  OpList ops_;
  VarList vars_;
  size_t op_count_ = 0;
  size_t var_count_ = 0;
  /// First declaration of each name.
  llvm::DenseMap<NameId, Var*> var_index_;
  // Built on demand: most programs are read, copied or written without any query for readers or
  // writers, and the index takes as much memory as the ops.
  mutable std::once_flag index_once_;
  bool is_indexed_ = false;
  llvm::DenseMap<NameId, uint32_t> use_index_;  // into uses_
  std::vector<Uses> uses_;
};

}  // namespace millrace
