#pragma once

#include "framework/var.h"

namespace millrace {

/// Whether a var is saved with its program: false for holders of feeds, fetches and readers, else
/// the var's persistable flag. Source: spec/distributed_io.md section 1.
bool is_persistable(const Var& var);

}  // namespace millrace
