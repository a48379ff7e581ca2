#pragma once

#include <string>
#include <utility>
#include <vector>

#include "framework/attribute.h"
#include "ops/registry.h"

/// Shape inference and gradient rules of one op, written as text.
///
/// A var is "f32[2,-1]", "f32[2]@1" with LoD level 1, "rows:f32[9,4]" for SELECTED_ROWS, "?" if not
/// even its rank is known. Slots are "X=f32[2] Y=f32[2]"; several vars of a slot are joined by '+'.
namespace millrace::ops {

using AttrList = std::vector<std::pair<std::string, AttrValue>>;

/// The result of inference for the output slots, "Out=f32[2] Mask=u8[2]", or the error message.
///
/// \param outputs  slots in the order of the result; a slot with several vars is "Out*2"
std::string infer(const std::string& type, const std::string& inputs, const std::string& outputs,
                  const AttrList& attrs = {});

/// The gradient ops, "mul_grad(Out@GRAD X Y -> X@GRAD Y@GRAD)", or the error message. If a rule
/// uses other ops, the attributes that it sets are printed after them: "scale(X -> Out) scale=2".
///
/// \param unwanted  input slots whose gradient is not needed
std::string grad(const std::string& type, const std::string& inputs, const std::string& outputs,
                 const AttrList& attrs = {}, const std::string& unwanted = "");

/// Cost estimate of the op with these inputs; 0 if it has none.
double flops(const std::string& type, const std::string& inputs, const AttrList& attrs = {});

}  // namespace millrace::ops
