#include "interchange/source_ops.h"

#include <algorithm>

namespace millrace::interchange {

StatusOr<Alignment> read_alignment(OpReader& c) {
  const auto axis = c.attr<int64_t>("axis");
  const int64_t rank_x = c.rank("X");
  const int64_t rank_y = c.rank("Y");
  Alignment alignment{.is_x = rank_x < rank_y, .axes = {}};
  if (axis == -1 || rank_x == rank_y) return alignment;
  const int64_t larger = std::max(rank_x, rank_y);
  const int64_t smaller = std::min(rank_x, rank_y);
  if (axis < 0 || axis + smaller > larger) return c.refuse("operands that axis does not align");
  for (int64_t i = smaller; i < larger - axis; ++i) alignment.axes.push_back(i);
  return alignment;
}

Status read_table_attrs(OpReader& c) {
  // Without servers the table is a parameter like any other.
  if (c.attr<bool>("remote_prefetch") && !c.attr<std::vector<std::string>>("epmap").empty())
    return c.refuse("a table on other servers");
  c.ignore({"is_sparse", "is_distributed", "entry", "entry_config", "table_class", "table_names",
            "trainer_id", "slot", "grad_inplace", "epmap", "height_sections"});
  return Ok();
}

}  // namespace millrace::interchange
