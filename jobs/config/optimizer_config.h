#pragma once

#include <string>

#include <nlohmann/json_fwd.hpp>

#include "framework/base/status.h"
#include "ops/minimize/options.h"

namespace millrace::jobs {

/// Reads one entry of "optimizer": {"type": "adam", hyper-parameters under the names of the
/// original, "learning_rate" or "schedule", "clip", "regularization", "parameter_list"}.
///
/// \param path     path of the entry, for messages
/// \param loss     the name that "loss" of an entry must have, if it has one
/// \param options  receives the settings of the entry
/// Errors: kInvalidArgument with the path of the member, and what was expected and found.
Status read_optimizer(const nlohmann::json& json, const std::string& path, const std::string& loss,
                      MinimizeOptions& options);

/// Reads {"type": "l1" or "l2", "coeff": C}.
StatusOr<Regularizer> read_regularizer(const nlohmann::json& json, const std::string& path);

/// Reads {"type": "value", "norm" or "global_norm", ...}.
StatusOr<GradientClip> read_clip(const nlohmann::json& json, const std::string& path);

}  // namespace millrace::jobs
