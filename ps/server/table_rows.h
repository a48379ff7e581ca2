#pragma once

#include <string_view>

#include "framework/base/status.h"
#include "framework/tensor/value.h"
#include "ps/transport/message.h"

namespace millrace::ps {

/// Looks up rows of a table by number; ids may repeat.
///
/// \param table  dense, or selected rows, which are looked up by their row numbers
/// \param ids    int64 of any dims
/// \param reply  receives a tensor [ids, width] under the name
/// Errors: kInvalidArgument naming the first id that is not in the table; kResource.
Status look_up_rows(const Value& table, const Tensor& ids, std::string_view name, ReplySink& reply);

/// Sets the row numbers of a table of selected rows that was declared without them, for server k of
/// n: k, k + n, ... Does nothing to other values.
/// \param height  rows of the whole table
void number_rows(Value& table, int64_t server, int64_t servers, int64_t height);

}  // namespace millrace::ps
