#pragma once

#include "framework/var.h"

namespace millrace {

/// Whether saving a program saves a var: false for holders of feeds, fetches and readers, else the
/// var's flag. Source: spec/distributed_io.md section 1.
bool is_persistable(const Var& var);

}  // namespace millrace
