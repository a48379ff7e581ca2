#pragma once

#include "api/program.h"
#include "framework/program.h"
#include "ops/registry.h"

/// Conversions between the plain values of api/program.h and the IR. Not installed.
namespace millrace::api {

/// Everything that an op states.
OpData data_of(const Op& op);
/// A declaration.
VarData data_of(const Var& var);

/// The value of an attribute of an op. \param registry  for kinds that the caller leaves open
/// Errors: kInvalidArgument for what AttrData does not permit (ProgramEditor::set_attr()).
StatusOr<AttrValue> value_of(const AttrData& attr, const Op& op, const ops::OpRegistry& registry);

/// The declaration that VarData describes. \param present  what it replaces; null if nothing; facts
/// that VarData does not have are kept
/// Errors: kInvalidArgument, as in ProgramEditor::declare().
StatusOr<VarSpec> spec_of(const VarData& var, const VarSpec* present);

}  // namespace millrace::api
