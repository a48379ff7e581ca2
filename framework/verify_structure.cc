#include "framework/verify_structure.h"

#include <algorithm>
#include <vector>

#include <llvm/ADT/DenseSet.h>

#include "framework/base/errors.h"

namespace millrace {
namespace {

// Release numbers are major * 1000000 + minor * 1000 + patch; no release has a major version of
// 100.
constexpr int64_t kMaxVersion = 100'000'000;

class StructureChecker {
 public:
  StructureChecker(const Program& program, const StructureLimits& limits, FindingList& findings)
      : program_(program), limits_(limits), findings_(findings) {}

  StructureFacts run() {
    check_version();
    check_tree();
    find_bad_names();
    for (const Block& block : program_.blocks()) {
      check_vars(block);
      if (!bad_names_.empty()) check_op_names(block);
    }
    return facts_;
  }

 private:
  static Location at_block(const Block& block) {
    Location where;
    where.block = block.index();
    return where;
  }

  void check_version() {
    const std::optional<int64_t> version = program_.version();
    if (!version) return;
    if (*version < 0) {
      findings_.error("version", InvalidProgram("program version {} is negative", *version));
    } else if (*version >= kMaxVersion) {
      findings_.warning("version",
                        InvalidProgram("program version {} matches no known release", *version));
    }
  }

  void broken_tree(std::string_view rule, const Block& block, Status status) {
    facts_.is_tree = false;
    findings_.error(rule, std::move(status).at(at_block(block)));
  }

  void check_tree() {
    if (program_.block_count() == 0) {
      facts_.is_tree = false;
      findings_.error("block-tree", InvalidProgram("program has no block"));
      return;
    }
    std::vector<int32_t> depth(program_.block_count(), 0);
    const auto count = static_cast<int32_t>(program_.block_count());
    for (const Block& block : program_.blocks()) {
      const int32_t index = block.index();
      const int32_t parent = block.parent();
      if (block.stated_index() != index) {
        broken_tree("block-index", block,
                    InvalidProgram("block at position {} states index {} (expected {}, found {})",
                                   index, block.stated_index(), index, block.stated_index()));
      }
      if (index == 0) {
        if (parent != -1) {
          broken_tree("block-parent", block,
                      InvalidProgram("root block has parent {} (expected -1)", parent));
        }
      } else if (parent < 0 || parent >= index) {
        broken_tree("block-parent", block,
                    InvalidProgram("parent of block {} is {} (expected a block from 0 to {})",
                                   index, parent, index - 1));
      } else if ((depth[index] = depth[parent] + 1) == limits_.max_block_depth + 1) {
        broken_tree("block-depth", block,
                    InvalidProgram("blocks are nested deeper than {}", limits_.max_block_depth));
      }
      const std::optional<int32_t> forward = block.forward_block();
      // Some files state 0 for "none", even in block 0, or the block itself: gradient merge does.
      if (forward && (*forward < -1 || *forward >= count)) {
        broken_tree(
            "block-forward", block,
            InvalidProgram("forward block of block {} is {} (expected -1 or one of {} blocks)",
                           index, *forward, count));
      }
    }
  }

  // ---- names

  static std::string_view fault_of(llvm::StringRef name, int64_t max_bytes) {
    if (name.contains('\0')) return "contains a NUL byte";
    if (static_cast<int64_t>(name.size()) > max_bytes) return "is too long";
    return {};
  }

  // Names are interned, so each is checked once. Uses of the rare faulty names are then located.
  void find_bad_names() {
    const NameTable& names = program_.names();
    for (size_t i = 0; i < names.size(); ++i) {
      const auto id = static_cast<NameId>(i);
      if (!fault_of(names.str(id), limits_.max_name_bytes).empty()) bad_names_.insert(id);
    }
  }

  // Reports one use of a faulty name. The message shows at most the first 64 bytes of it.
  void bad_name(std::string_view what, NameId id, Location where) {
    if (!bad_names_.contains(id)) return;
    const llvm::StringRef name = program_.names().str(id);
    findings_.error(
        "name",
        InvalidProgram("{} '{}' {} ({} bytes, limit {})", what, name.take_front(64).str(),
                       fault_of(name, limits_.max_name_bytes), name.size(), limits_.max_name_bytes)
            .at(std::move(where)));
  }

  void check_op_names(const Block& block) {
    int64_t index = 0;
    for (const Op& op : block.ops()) {
      Location where = at_block(block);
      where.op = index++;
      where.op_type = op.type().take_front(64).str();
      bad_name("op type", op.type_id(), where);
      for (const auto slots : {op.inputs(), op.outputs()}) {
        for (const Slot& slot : slots) {
          bad_name("slot name", slot.name, where);
          for (const Arg& arg : slot.args) bad_name("argument", arg.name, where);
        }
      }
      for (const Attr& attr : op.attrs()) bad_name("attribute name", attr.name, where);
    }
  }

  // ---- vars

  void check_vars(const Block& block) {
    for (const Var& var : block.vars()) {
      if (block.find_var(var.id()) != &var) var_error("var-twice", var, "is declared twice");
      const llvm::StringRef name = var.name();
      if (name.empty()) var_error("name", var, "has an empty name");
      if (!bad_names_.empty()) bad_name("var name", var.id(), at_block(block));
      check_numbers(var);
      if (is_valid(var.kind()) && var.spec().has_tensor()) check_dims(var);
    }
  }

  void var_error(std::string_view rule, const Var& var, std::string_view what) {
    Location where = at_block(var.block());
    where.var = var.name().take_front(256).str();
    findings_.error(rule, InvalidProgram("var '{}' {}", where.var, what).at(where));
  }

  void check_numbers(const Var& var) {
    const VarSpec& spec = var.spec();
    if (!is_valid(spec.kind)) {
      facts_.shapes_are_sane = false;
      var_error("var-kind", var,
                fmt::format("has unknown kind {}", static_cast<int32_t>(spec.kind)));
    }
    if (!spec.has_tensor()) {
      // Control vars and scratch vars have no shape, but persistable tensors must have one.
      if (spec.kind == VarKind::kLodTensor && var.persistable())
        var_error("var-shape", var, "is a persistable tensor without data type and dims");
      return;
    }
    if (!is_valid(spec.dtype)) {
      facts_.shapes_are_sane = false;
      var_error("var-dtype", var,
                fmt::format("has unknown data type {}", static_cast<int32_t>(spec.dtype)));
    }
    if (spec.lod_level.value_or(0) < 0 || spec.lod_level.value_or(0) > limits_.max_rank) {
      facts_.shapes_are_sane = false;
      var_error(
          "var-dims", var,
          fmt::format("has LoD level {} (expected 0 to {})", *spec.lod_level, limits_.max_rank));
    }
  }

  // True for a var that each run computes: its dims follow from those of other vars.
  static bool is_computed(const Var& var) {
    return !var.persistable() && !var.block().writers_of(var.name()).empty();
  }

  void check_dims(const Var& var) {
    const llvm::ArrayRef<int64_t> dims = var.dims();
    const size_t errors = findings_.error_count();
    if (dims.size() > static_cast<size_t>(limits_.max_rank)) {
      var_error("var-rank", var,
                fmt::format("has {} dims (at most {})", dims.size(), limits_.max_rank));
    }
    const auto* const negative =
        std::find_if(dims.begin(), dims.end(), [](int64_t d) { return d < -1; });
    if (negative != dims.end() && !is_computed(var)) {
      var_error("var-dims", var,
                fmt::format("has dim {} at position {} (expected -1 or more)", *negative,
                            negative - dims.begin()));
    } else if (negative == dims.end() && is_valid(var.dtype())) {
      const std::optional<int64_t> bytes = tensor_bytes(var.dtype(), dims);
      if (!bytes) {
        var_error("var-bytes", var, "has dims whose product does not fit 64 bits");
      } else if (*bytes > limits_.max_tensor_bytes && var.kind() != VarKind::kSelectedRows) {
        var_error("var-bytes", var,
                  fmt::format("takes {} bytes, above the limit of {} bytes for a tensor", *bytes,
                              limits_.max_tensor_bytes));
      }
    }
    if (findings_.error_count() != errors) facts_.shapes_are_sane = false;
  }

  const Program& program_;
  const StructureLimits& limits_;
  FindingList& findings_;
  StructureFacts facts_;
  llvm::DenseSet<NameId> bad_names_;
};

}  // namespace

std::optional<int64_t> tensor_bytes(DType dtype, llvm::ArrayRef<int64_t> dims) {
  int64_t bytes = std::max<int64_t>(dtype_size(dtype), 1);
  bool is_empty = false;
  for (const int64_t dim : dims) {
    if (dim < -1) return std::nullopt;
    is_empty |= dim == 0;
    if (dim > 0 && __builtin_mul_overflow(bytes, dim, &bytes)) return std::nullopt;
  }
  return is_empty ? 0 : bytes;
}

StructureFacts verify_structure(const Program& program, const StructureLimits& limits,
                                FindingList& findings) {
  return StructureChecker(program, limits, findings).run();
}

}  // namespace millrace
