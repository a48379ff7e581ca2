#pragma once

#include <string_view>

#include "framework/base/status.h"
#include "framework/tensor/value.h"
#include "ps/transport/message.h"

namespace millrace::ps {

/// Rows of a table by number, repeats included.
///
/// \param table  dense, or selected rows, whose row numbers then count
/// \param ids    int64 of any dims
/// \param reply  gets [ids, width] under the name
/// Errors: kInvalidArgument naming the first id that is not in the table; kResource.
Status look_up_rows(const Value& table, const Tensor& ids, std::string_view name, ReplySink& reply);

/// Gives a table of selected rows that was declared without row numbers the ones that server k of n
/// has: k, k + n, ... Does nothing to other values.
/// \param height  rows of the whole table
void number_rows(Value& table, int64_t server, int64_t servers, int64_t height);

}  // namespace millrace::ps
