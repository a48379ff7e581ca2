#pragma once

#include <string>
#include <vector>

#include <llvm/ADT/ArrayRef.h>
#include <llvm/ADT/StringRef.h>

#include "framework/base/status.h"
#include "framework/types.h"

/// Facts about how a job was distributed, one line of text each, by which a trainer and a server
/// find out that they belong to different distributions although the names of their vars agree.
/// Thread-safety: pure.
namespace millrace::ps {

/// Facts about one server. Those of which two processes know different ones are compared.
using PlanFacts = std::vector<std::string>;

/// "f32 [2, 3]". The dims of a single element are written as [1], because programs declare a scalar
/// as [] or [1]. Empty if the dims are not known: a dim is negative.
std::string type_fact(DType dtype, llvm::ArrayRef<int64_t> dims);

/// A trainer receives a var of this type under this name: "receives w as f32 [2, 3]".
std::string received_fact(llvm::StringRef name, const std::string& type);
/// A fact of that kind.
struct ReceivedFact {
  std::string name;  ///< as print_name() writes it
  std::string type;
};
/// \returns true if the line is a fact of that kind
bool parse_received(llvm::StringRef line, ReceivedFact& fact);

/// A line of ProgramProperties::training: "training: sync with 2 trainers".
std::string training_fact(const std::string& line);
/// True for facts of that kind.
bool is_training(llvm::StringRef fact);

/// True for facts that both sides must have alike: all but that kind.
bool is_common(llvm::StringRef fact);

/// Compares the common facts of two processes, if both have some.
/// \param theirs, ours  name the processes in the message: "trainer 0", "server 1 at a:1"
/// Errors: kDistributed with the first fact, in order of the alphabet, that only one side has.
Status compare_plans(const PlanFacts& their_facts, const std::string& theirs,
                     const PlanFacts& our_facts, const std::string& ours);

}  // namespace millrace::ps
