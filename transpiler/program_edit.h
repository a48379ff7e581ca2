#pragma once

#include <string>
#include <vector>

#include <llvm/ADT/DenseSet.h>
#include <llvm/ADT/StringRef.h>

#include "framework/program.h"

/// Edits that several passes share.
namespace millrace::transpiler {

/// Erases the blocks that no op owns any more, directly or through other blocks, and renumbers the
/// rest; returns how many were erased. Parents and forward blocks of the remaining blocks are kept.
/// Programs whose ops refer to blocks by number in plain attributes (listen_and_serv) are not
/// changed.
size_t erase_unowned_blocks(Program& program);

/// Names that the ops of all blocks mention: slots, and attributes that hold var names (recurrent
/// states, tables of the parameter server); op_role_var does not count.
llvm::DenseSet<NameId> mentioned_names(const Program& program);

/// Names that the ops of the other blocks mention, and names in attributes of any op. These vars
/// have uses outside of the slots of block 0.
llvm::DenseSet<NameId> names_outside_root(const Program& program);

/// Erases the declarations that no op mentions; returns how many were erased.
/// \param keep         names that are kept
/// \param persistable  also erases those of persistable vars
size_t erase_unmentioned_vars(Program& program, const std::vector<std::string>& keep,
                              bool persistable);

/// True if the name is declared in some block or written by some op.
bool is_known_var(const Program& program, llvm::StringRef name);

/// True if no block reads an output of the op other than `out`.
bool only_output_read(const Op& op, llvm::StringRef out);

/// The error kNotFound for a var that an option names, with the nearest declared name as a hint.
Status no_such_var(const Program& program, llvm::StringRef name, llvm::StringRef option);

}  // namespace millrace::transpiler
