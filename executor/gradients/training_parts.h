#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "framework/base/status.h"
#include "framework/program.h"

/// Analyses the parts of a training program, for checking its gradients.
namespace millrace::executor {

/// Losses by name, each with the initial value of its gradient in the program (normally 1). Empty
/// for a program without gradients. Errors: kInvalidProgram if the loss of such an initial gradient
/// is not declared.
StatusOr<std::map<std::string, double>> seeded_losses(const Program& program);

/// Removes ops that work on complete gradients: updates, what belongs to them (schedules, clipping
/// of gradients, regularization), and error clips, which change gradients on purpose.
///
/// \returns the removed ops that change gradients, one line each
/// Errors: kUnimplemented naming an op that sends or receives: such a program is part of a
/// distributed job.
StatusOr<std::vector<std::string>> remove_updates(Program& program);

/// True for an op that computes gradients: by its role, else by its outputs. Includes ops that
/// decrement loop counters in the backward part.
bool is_gradient_op(const Op& op);

/// Gradient vars of parameters: as listed in op_role_var, else by their names; one per loss.
std::map<std::string, std::set<std::string>> gradients_of_params(const Program& program);

/// Names that the given names depend on, including themselves. If several ops write a name, all of
/// them are included.
std::set<std::string> sources_of(const Program& program, const std::set<std::string>& names);

/// Names that depend on the given names, including themselves.
std::set<std::string> results_of(const Program& program, const std::set<std::string>& names);

/// Removes the ops of block 0 that the names do not depend on.
void keep_only_sources(Program& program, const std::set<std::string>& names);

}  // namespace millrace::executor
