#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "framework/base/status.h"
#include "framework/program.h"

/// What a training program consists of, for checking its gradients.
namespace millrace::executor {

/// Losses by name, with the factor that the program seeds their gradient with (1 as a rule). Empty
/// for a program without gradients. Errors: kInvalidProgram for a seed of no var.
StatusOr<std::map<std::string, double>> seeded_losses(const Program& program);

/// Takes out what works on gradients once they are there: updates, what belongs to them (schedules,
/// clipping of gradients, regularisation), and error clips, which change gradients on purpose.
///
/// \returns what was taken out though it changes gradients, a line each
/// Errors: kUnimplemented naming an op that sends or receives: such a program is part of a job.
StatusOr<std::vector<std::string>> remove_updates(Program& program);

/// True for an op that computes gradients: by its role, else by what it writes. Counters that are
/// counted back are among them.
bool is_gradient_op(const Op& op);

/// Gradient vars of parameters as the program's ops name them (op_role_var), else by their names;
/// one a loss.
std::map<std::string, std::set<std::string>> gradients_of_params(const Program& program);

/// Names that the value of some names is computed from, themselves included. A name that several
/// ops write counts with all of them.
std::set<std::string> sources_of(const Program& program, const std::set<std::string>& names);

/// Names that are computed from some names, themselves included.
std::set<std::string> results_of(const Program& program, const std::set<std::string>& names);

/// Removes the ops of block 0 that the names are not computed from.
void keep_only_sources(Program& program, const std::set<std::string>& names);

}  // namespace millrace::executor
