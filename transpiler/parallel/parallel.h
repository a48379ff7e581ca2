#pragma once

#include <string>
#include <vector>

#include "framework/program.h"

/// What the passes that produce the program of one device of a data-parallel job in one process,
/// and their callers, ask a program.
/// Source: spec/parallel_executor.md section 4.
namespace millrace::transpiler {

/// Names of the gradients that back-propagation starts from: what the ops of role backward|loss
/// write, in order. Empty for programs that do not train.
std::vector<std::string> loss_gradients(const Program& program);

/// The vars of block 0 whose gradient is one of them, in the order of the block: the losses.
std::vector<std::string> trained_losses(const Program& program);

/// True if some op has the role backward or optimize.
bool is_training_program(const Program& program);

}  // namespace millrace::transpiler
