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

/// Sets the row numbers of a server's part of a table as its startup program leaves it, that is
/// without numbers or numbered from 0. Server k of n has k, k + n, ... Startup programs make as
/// many rows on every server as on the first one; those beyond the height are dropped. Tables with
/// other numbers stay as they are, and so do other values. \param height  rows of the whole table;
/// 0: that of n such parts, because it is not known
void number_rows(Value& table, int64_t server, int64_t servers, int64_t height);

}  // namespace millrace::ps
