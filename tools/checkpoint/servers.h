#pragma once

#include <memory>
#include <string>

#include "framework/base/status.h"
#include "tools/checkpoint/source.h"

namespace millrace::tools {

/// The variables of a job with parameter servers, whole and under their original names, from the
/// snapshots of its servers: `<root>/server-<i>/step-<n>`, i counted as in slices.json.
///
/// Of each server the newest good snapshot is taken; if they are of different steps, the newest
/// step that all of them have. Slices are joined by their offsets; what several servers hold alike
/// is taken from one. Single numbers that slices.json does not list (steps, learning rates) come
/// along; gradients and what updates scribble on do not.
///
/// \param slices  the slices.json of the job that wrote the snapshots
/// Errors: kNotFound for a server without snapshot; kInvalidData if there is no common step, with
/// the steps, and for slices that do not make up their variable.
StatusOr<std::unique_ptr<TensorSource>> open_servers(const Tool& tool, const std::string& root,
                                                     const std::string& slices);

}  // namespace millrace::tools
