#pragma once

#include <string>
#include <vector>

#include <llvm/ADT/DenseSet.h>
#include <llvm/ADT/StringRef.h>

#include "framework/program.h"

/// Edits that several passes share.
namespace millrace::transpiler {

/// Erases the blocks that no op, directly or through other blocks, owns any more, and renumbers the
/// rest; says how many there were. Parents and forward blocks of blocks that stay, stay too.
/// Programs whose ops name blocks by number in plain attributes (listen_and_serv) are left alone.
size_t erase_unowned_blocks(Program& program);

/// Names that the ops of all blocks mention: slots, and attributes that hold var names (recurrent
/// states, tables of the parameter server); op_role_var does not count.
llvm::DenseSet<NameId> mentioned_names(const Program& program);

/// Names that the ops of the other blocks mention, and those that attributes of any op hold. What
/// block 0 does with such a var is not all there is to know of it.
llvm::DenseSet<NameId> names_outside_root(const Program& program);

/// Erases the declarations that no op mentions; says how many there were.
/// \param keep         names that stay
/// \param persistable  also those of persistable vars
size_t erase_unmentioned_vars(Program& program, const std::vector<std::string>& keep,
                              bool persistable);

/// True if the name is declared in some block or written by some op.
bool is_known_var(const Program& program, llvm::StringRef name);

/// kNotFound with the nearest declared name as a hint, for a var that an option names.
Status no_such_var(const Program& program, llvm::StringRef name, llvm::StringRef option);

}  // namespace millrace::transpiler
