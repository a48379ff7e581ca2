#include "ps/ops/large_tables.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include <fmt/format.h>
#include <llvm/ADT/SmallVector.h>
#include <llvm/ADT/StringRef.h>

#include "executor/block_runner.h"
#include "framework/base/errors.h"
#include "framework/tensor/value.h"
#include "kernels/cpu/merge_rows.h"
#include "ps/client/failed.h"
#include "ps/table/keyed_random.h"

// Tables on servers whose rows are created on first use, for the update blocks of servers.
namespace millrace::ps {
namespace {

using executor::BlockRunner;
using executor::Control;
using executor::ControlContext;
using executor::ControlRegistry;
using kernels::ArgIndex;
using kernels::ArgRange;
using kernels::KernelSetup;
using Strings = std::vector<std::string>;
using Tables = std::shared_ptr<LargeTables>;
using Columns = std::vector<const LargeTable::Column*>;

constexpr int kParts = 8;

std::vector<std::string> list_of(llvm::StringRef text) {
  llvm::SmallVector<llvm::StringRef, 4> words;
  text.split(words, ',', -1, false);
  std::vector<std::string> list;
  for (const llvm::StringRef word : words) list.push_back(word.trim().str());
  return list;
}

StatusOr<Columns> columns_of(const LargeTable& table, const Strings& names) {
  Columns columns;
  for (const std::string& name : names) {
    MILLRACE_ASSIGN_OR_RETURN(columns.emplace_back(), table.column(name));
  }
  return columns;
}

StatusOr<std::span<const int64_t>> ids_of(const Value& value) {
  const auto* const ids = value.get_if<Tensor>();
  if (ids == nullptr || !ids->initialized() || ids->dtype() != DType::kInt64)
    return failed(fmt::format("Ids must be i64, found {}", describe(value)));
  return ids->values<int64_t>();
}

Status no_such_row(const LargeTable& table, int64_t id) {
  return failed(fmt::format("table '{}' has no row {}", table.name(), id));
}

// The names in the attributes of an op.
struct TableNames {
  std::string table;
  Strings columns;
  bool entry = false;
};

TableNames names_in(const KernelSetup& setup) {
  return {setup.attr<std::string>("tablename"), setup.attr<Strings>("value_names"),
          setup.attr<bool>("is_entry")};
}

StatusOr<Control> make_init(const Tables& tables, const KernelSetup& setup) {
  const auto descriptions = setup.attr<Strings>("large_scale_metas");
  return Control([=](ControlContext& /*ctx*/) -> Status {
    for (const std::string& text : descriptions) {
      MILLRACE_ASSIGN_OR_RETURN(std::unique_ptr<LargeTable> table, LargeTable::parse(text));
      tables->add(std::move(table));
    }
    return Ok();
  });
}

// A table that no other op uses until this is destroyed, and the columns that an op names.
struct LockedTable {
  LargeTable* table;
  std::unique_lock<std::mutex> lock;
  Columns columns;
};

StatusOr<LockedTable> lock_table(const Tables& tables, const TableNames& names) {
  MILLRACE_ASSIGN_OR_RETURN(LargeTable* const table, tables->find(names.table));
  std::unique_lock lock(table->mutex());
  MILLRACE_ASSIGN_OR_RETURN(Columns columns, columns_of(*table, names.columns));
  return LockedTable{table, std::move(lock), std::move(columns)};
}

StatusOr<Control> make_read(const Tables& tables, const KernelSetup& setup) {
  const TableNames names = names_in(setup);
  const ArgIndex ids_arg = setup.input("Ids");
  const ArgRange out = setup.outputs("Out");
  const bool creates = setup.attr<bool>("init");
  if (static_cast<size_t>(out.count) != names.columns.size())
    return setup.error("found {} outputs for {} columns, expected one each", out.count,
                       names.columns.size());
  return Control([=](ControlContext& ctx) -> Status {
    MILLRACE_ASSIGN_OR_RETURN(const LockedTable locked, lock_table(tables, names));
    const auto& [table, lock, columns] = locked;
    MILLRACE_ASSIGN_OR_RETURN(const auto ids, ids_of(ctx.args.in_value(ids_arg)));
    std::vector<float*> to;
    for (int32_t k = 0; k < out.count; ++k) {
      auto& tensor = ctx.args.out_value(out, k).as<Tensor>();
      const auto width = static_cast<int64_t>(columns[static_cast<size_t>(k)]->width);
      MILLRACE_RETURN_IF_ERROR(
          tensor.resize(DType::kFloat32, {static_cast<int64_t>(ids.size()), width}));
      to.push_back(tensor.data<float>());
    }
    for (const int64_t id : ids) {
      LargeTable::Row* const row = creates ? &table->make(id) : table->find(id);
      if (row == nullptr) return no_such_row(*table, id);
      for (size_t k = 0; k < columns.size(); ++k)
        to[k] = std::copy_n(row->values.begin() + static_cast<int64_t>(columns[k]->offset),
                            columns[k]->width, to[k]);
    }
    return Ok();
  });
}

// Replaces rows of the table, or adds new ones.
StatusOr<Control> make_write(const Tables& tables, const KernelSetup& setup, bool adds) {
  const TableNames names = names_in(setup);
  const ArgRange ids_args = setup.inputs("Ids");
  const ArgRange in = setup.inputs("In");
  const ArgRange out = adds ? setup.outputs("Out") : ArgRange{};
  if (ids_args.count != 1 || static_cast<size_t>(in.count) != names.columns.size())
    return setup.error(
        "found {} 'Ids' and {} 'In' for {} columns, expected one 'Ids' and an 'In' for each column",
        ids_args.count, in.count, names.columns.size());
  return Control([=](ControlContext& ctx) -> Status {
    MILLRACE_ASSIGN_OR_RETURN(const LockedTable locked, lock_table(tables, names));
    const auto& [table, lock, columns] = locked;
    MILLRACE_ASSIGN_OR_RETURN(const auto ids, ids_of(ctx.args.in_value(ids_args, 0)));
    for (int32_t k = 0; k < in.count; ++k) {
      const LargeTable::Column& column = *columns[static_cast<size_t>(k)];
      const auto* const from = ctx.args.in_value(in, k).get_if<Tensor>();
      if (from == nullptr || from->dtype() != DType::kFloat32 ||
          static_cast<size_t>(from->numel()) != ids.size() * column.width) {
        return failed(fmt::format("In[{}] must be f32 [{}, {}], found {}", k, ids.size(),
                                  column.width, describe(ctx.args.in_value(in, k))));
      }
      Tensor* to = nullptr;
      if (k < out.count) {
        to = &ctx.args.out_value(out, k).as<Tensor>();
        if (to != from) MILLRACE_RETURN_IF_ERROR(to->resize(DType::kFloat32, from->dims()));
      }
      for (size_t i = 0; i < ids.size(); ++i) {
        const float* const source = from->data<float>() + i * column.width;
        float* const values = table->make(ids[i]).values.data() + column.offset;
        for (size_t j = 0; j < column.width; ++j)
          values[j] = adds ? values[j] + source[j] : source[j];
        if (to != nullptr) std::copy_n(values, column.width, to->data<float>() + i * column.width);
      }
    }
    return Ok();
  });
}

// Calls update(row, gradient) for every distinct row of a gradient that the entry rule has
// admitted.
template <typename Update>
Status for_each_row(LargeTable& table, const Value& value, size_t width, bool entry,
                    Update&& update) {
  const auto* const grad = value.get_if<SelectedRows>();
  if (grad == nullptr || grad->value.dtype() != DType::kFloat32)
    return failed(fmt::format("Grad must be f32 selected rows, found {}", describe(value)));
  if (grad->rows.empty()) return Ok();
  kernels::RowMerger merger;
  MILLRACE_RETURN_IF_ERROR(merger.merge(*grad));
  if (static_cast<size_t>(merger.width()) != width)
    return failed(fmt::format("Grad has rows of {} elements, but table '{}' has rows of {}",
                              merger.width(), table.name(), width));
  const float* from = merger.values<float>();
  for (const int64_t id : merger.rows()) {
    LargeTable::Row& row = table.make(id);
    if (entry) table.access(id, row);
    if (!entry || row.admitted) update(row.values.data(), from);
    from += width;
  }
  return Ok();
}

StatusOr<float> single_number(const Value& value, const char* slot) {
  const auto* const tensor = value.get_if<Tensor>();
  if (tensor == nullptr || tensor->dtype() != DType::kFloat32 || tensor->numel() != 1)
    return failed(fmt::format("{} must be a single f32, found {}", slot, describe(value)));
  return *tensor->data<float>();
}

StatusOr<float> read_rate(const ControlContext& ctx, ArgIndex rate) {
  return single_number(ctx.args.in_value(rate), "LearningRate");
}

StatusOr<Control> make_sgd(const Tables& tables, const KernelSetup& setup) {
  const TableNames names = names_in(setup);
  const ArgIndex grad = setup.input("Grad");
  const ArgIndex rate_arg = setup.input("LearningRate");
  if (names.columns.size() != 1)
    return setup.error("'value_names' has {} columns, expected one (the parameter)",
                       names.columns.size());
  return Control([=](ControlContext& ctx) -> Status {
    MILLRACE_ASSIGN_OR_RETURN(const LockedTable locked, lock_table(tables, names));
    const auto& [table, lock, columns] = locked;
    MILLRACE_ASSIGN_OR_RETURN(const float rate, read_rate(ctx, rate_arg));
    const LargeTable::Column& param = *columns[0];
    return for_each_row(*table, ctx.args.in_value(grad), param.width, names.entry,
                        [&](float* row, const float* from) {
                          for (size_t i = 0; i < param.width; ++i)
                            row[param.offset + i] -= rate * from[i];
                        });
  });
}

struct Adam {
  float beta1 = 0;
  float beta2 = 0;
  float epsilon = 0;
};

StatusOr<Control> make_adam(const Tables& tables, const KernelSetup& setup) {
  const TableNames names = names_in(setup);
  const Adam adam{setup.attr<float>("beta1"), setup.attr<float>("beta2"),
                  setup.attr<float>("epsilon")};
  const ArgIndex grad = setup.input("Grad");
  const ArgIndex rate_arg = setup.input("LearningRate");
  const std::array<ArgIndex, 2> powers{setup.input("Beta1Pow"), setup.input("Beta2Pow")};
  const std::array<ArgIndex, 2> advanced{setup.output("Beta1PowOut"), setup.output("Beta2PowOut")};
  if (names.columns.size() != 3)
    return setup.error(
        "'value_names' has {} columns, expected three (the parameter and two moments)",
        names.columns.size());
  return Control([=](ControlContext& ctx) -> Status {
    MILLRACE_ASSIGN_OR_RETURN(const LockedTable locked, lock_table(tables, names));
    // no structured binding: clang refuses it in the lambda below
    const Columns& columns = locked.columns;
    MILLRACE_ASSIGN_OR_RETURN(const float rate, read_rate(ctx, rate_arg));
    MILLRACE_ASSIGN_OR_RETURN(const float power1,
                              single_number(ctx.args.in_value(powers[0]), "Beta1Pow"));
    MILLRACE_ASSIGN_OR_RETURN(const float power2,
                              single_number(ctx.args.in_value(powers[1]), "Beta2Pow"));
    const float step = rate * std::sqrt(1 - power2) / (1 - power1);
    const size_t width = columns[0]->width;
    MILLRACE_RETURN_IF_ERROR(for_each_row(
        *locked.table, ctx.args.in_value(grad), width, names.entry,
        [&](float* row, const float* from) {
          float* const param = row + columns[0]->offset;
          float* const moment1 = row + columns[1]->offset;
          float* const moment2 = row + columns[2]->offset;
          for (size_t i = 0; i < width; ++i) {
            moment1[i] = adam.beta1 * moment1[i] + (1 - adam.beta1) * from[i];
            moment2[i] = adam.beta2 * moment2[i] + (1 - adam.beta2) * from[i] * from[i];
            param[i] -= step * (moment1[i] / (std::sqrt(moment2[i]) + adam.epsilon));
          }
        }));
    const std::array<float, 2> after{power1 * adam.beta1, power2 * adam.beta2};
    for (size_t k = 0; k < after.size(); ++k) {
      auto& to = ctx.args.out_value(advanced[k]).as<Tensor>();
      MILLRACE_RETURN_IF_ERROR(to.resize(DType::kFloat32, {1}));
      *to.data<float>() = after[k];
    }
    return Ok();
  });
}

}  // namespace

StatusOr<std::unique_ptr<LargeTable>> LargeTable::parse(const std::string& description) {
  llvm::SmallVector<llvm::StringRef, kParts> parts;
  llvm::StringRef(description).split(parts, ':', kParts - 1);
  const auto wrong = [&](const std::string& why) {
    return InvalidProgram("attribute 'large_scale_metas': '{}': {}", description, why);
  };
  if (parts.size() != kParts) return wrong(fmt::format("{} parts, expected 8", parts.size()));
  const std::vector<std::string> names = list_of(parts[1]);
  const std::vector<std::string> widths = list_of(parts[2]);
  const std::vector<std::string> initializers = list_of(parts[6]);
  if (names.empty() || names.size() != widths.size() || names.size() != initializers.size())
    return wrong("expected a width and an initializer for each column");
  auto table = std::make_unique<LargeTable>();
  table->name_ = parts[0].str();
  for (size_t i = 0; i < names.size(); ++i) {
    Column& column = table->columns_.emplace_back();
    column.name = names[i];
    constexpr size_t kWidest = size_t{1} << 20U;
    if (llvm::StringRef(widths[i]).getAsInteger(10, column.width) || column.width == 0 ||
        column.width > kWidest)
      return wrong(fmt::format("'{}' is not a valid width", widths[i]));
    column.offset = table->width_;
    table->width_ += column.width;
    MILLRACE_ASSIGN_OR_RETURN(column.initializer, parse_initializer(initializers[i]));
  }
  MILLRACE_ASSIGN_OR_RETURN(table->entry_, parse_entry(parts[7].str()));
  return table;
}

StatusOr<const LargeTable::Column*> LargeTable::column(const std::string& name) const {
  for (const Column& column : columns_) {
    if (column.name == name) return &column;
  }
  return NotFound("table '{}' has no column '{}'", name_, name);
}

LargeTable::Row* LargeTable::find(int64_t id) {
  const auto found = rows_.find(id);
  return found == rows_.end() ? nullptr : &found->second;
}

LargeTable::Row& LargeTable::make(int64_t id) {
  const auto [place, added] = rows_.try_emplace(id);
  Row& row = place->second;
  if (!added) return row;
  row.values.resize(width_);
  row.admitted =
      entry_.kind == EntryPolicy::Kind::kNone || entry_.kind == EntryPolicy::Kind::kShowClick;
  for (const Column& column : columns_) {
    KeyedRandom random(column.initializer.seed, static_cast<uint64_t>(id));
    column.initializer.fill(std::span(row.values).subspan(column.offset, column.width), random);
  }
  return row;
}

void LargeTable::access(int64_t id, Row& row) const {
  ++row.accesses;
  if (row.admitted) return;
  if (entry_.kind == EntryPolicy::Kind::kCountFilter) row.admitted = row.accesses >= entry_.count;
  if (entry_.kind != EntryPolicy::Kind::kProbability) return;
  KeyedRandom random(static_cast<uint64_t>(row.accesses), static_cast<uint64_t>(id));
  row.admitted = random.uniform() < entry_.probability;
}

void LargeTables::add(std::unique_ptr<LargeTable> table) {
  const std::lock_guard lock(mutex_);
  const std::string name = table->name();
  tables_.emplace(name, std::move(table));
}

StatusOr<LargeTable*> LargeTables::find(const std::string& name) const {
  const std::lock_guard lock(mutex_);
  const auto found = tables_.find(name);
  if (found != tables_.end()) return found->second.get();
  return NotFound("large table '{}' does not exist; lookup_sparse_table_init creates tables", name);
}

void add_large_table_controls(ControlRegistry& registry, const Tables& tables) {
  const auto add = [&](llvm::StringRef op, auto make) {
    registry.add("lookup_sparse_table_" + op.str(),
                 [tables, make](const KernelSetup& setup, BlockRunner& /*runner*/) {
                   return make(tables, setup);
                 });
  };
  add("init", make_init);
  add("read", make_read);
  add("write", [](const Tables& all, const KernelSetup& setup) {
    return make_write(all, setup, /*adds=*/false);
  });
  add("merge", [](const Tables& all, const KernelSetup& setup) {
    return make_write(all, setup, /*adds=*/true);
  });
  add("fuse_sgd", make_sgd);
  add("fuse_adam", make_adam);
}

}  // namespace millrace::ps
