#include "ops/infer_shapes.h"

#include <llvm/ADT/DenseMap.h>

#include "framework/names.h"

namespace millrace::ops {
namespace {

const Block* block_at(const Program& program, int32_t index) {
  if (index < 0 || static_cast<size_t>(index) >= program.block_count()) return nullptr;
  return &program.block(index);
}

// Where what is known of a name is kept.
struct Home {
  const Block* block = nullptr;  // null: nothing declares the name
  NameId name{};
};

// A gradient block runs inside the scopes of its forward block. So the vars of that one come before
// those of the parent: a step input of a recurrent op has the name of the whole sequence outside,
// and so has the gradient of a step output, which has the shape of that output.
Home home_in_forward_block(const Block& block, NameId name) {
  // Block 0 is what files state for "none".
  if (block.forward_block().value_or(0) <= 0) return {};
  const Block* const forward = block_at(block.program(), *block.forward_block());
  if (forward == nullptr) return {};
  if (forward->find_var(name) != nullptr) return {forward, name};
  const llvm::StringRef text = block.program().names().str(name);
  for (const Var& var : forward->vars()) {
    if (text.startswith(var.name()) && names::grad(var.name()) == text) return {forward, var.id()};
  }
  return {};
}

// The declaration that a name stands for: in the block itself or in one around it.
Home find_home(const Block& block, NameId name) {
  const Program& program = block.program();
  const Block* b = &block;
  for (size_t steps = 0; b != nullptr && steps <= program.block_count(); ++steps) {
    if (b->find_var(name) != nullptr) return {b, name};
    const Home home = home_in_forward_block(*b, name);
    if (home.block != nullptr) return home;
    b = block_at(program, b->parent());
  }
  return {};
}

// Inference over the declarations of a program. What ops set is kept beside the declarations, per
// block, because a name may be declared anew in a sub-block.
class ProgramMetas {
 public:
  const VarMeta& find(const Block& block, NameId name) {
    const Home home = find_home(block, name);
    if (home.block == nullptr) return unknown_;
    const auto it = metas_.find({home.block->index(), home.name});
    if (it != metas_.end()) return *it->second;
    return *store(*home.block, home.name, meta_of(home.block->find_var(home.name)->spec()));
  }

  // Records what an op says of a var, at the block that declares it; null if none does.
  Var* set(const Block& block, NameId name, VarMeta meta) {
    const Home home = find_home(block, name);
    if (home.block == nullptr || home.name != name) return nullptr;
    store(*home.block, name, std::move(meta));
    return home.block->find_var(name);
  }

 private:
  VarMeta* store(const Block& block, NameId name, VarMeta meta) {
    std::unique_ptr<VarMeta>& slot = metas_[{block.index(), name}];
    // In place: inference functions hold references while they set outputs, which may be the same
    // var.
    if (slot == nullptr) slot = std::make_unique<VarMeta>();
    *slot = std::move(meta);
    return slot.get();
  }

  llvm::DenseMap<std::pair<int32_t, NameId>, std::unique_ptr<VarMeta>> metas_;
  VarMeta unknown_ = [] {
    VarMeta meta;
    meta.has_shape = false;
    return meta;
  }();
};

class ProgramInferContext final : public InferContext {
 public:
  ProgramInferContext(const OpDef& def, const Op& op, ProgramMetas& metas,
                      std::vector<Var*>& changed)
      : InferContext(def, op), block_(op.block()), metas_(metas), changed_(changed) {}

 protected:
  const VarMeta& meta(NameId name) const override { return metas_.find(block_, name); }
  void set_meta(NameId name, VarMeta meta) override {
    if (Var* const var = metas_.set(block_, name, std::move(meta))) changed_.push_back(var);
  }

 private:
  const Block& block_;
  ProgramMetas& metas_;
  std::vector<Var*>& changed_;
};

// Writes inferred facts into a declaration; flags and LoD presence stay as they are where nothing
// changes.
void apply(Var& var, const VarMeta& meta) {
  VarSpec spec = var.spec();
  if (!meta.has_shape) return;
  if (meta.kind != spec.kind && spec.kind != VarKind::kLodTensor)
    return;  // an explicit special kind wins
  spec.kind = meta.kind;
  if (spec.form == TensorForm::kNone || meta.kind != var.kind()) {
    switch (meta.kind) {
      case VarKind::kSelectedRows:
        spec.form = TensorForm::kSelectedRows;
        break;
      case VarKind::kLodTensorArray:
        spec.form = TensorForm::kTensorArray;
        break;
      default:
        spec.form = TensorForm::kLodTensor;
    }
  }
  spec.dtype = meta.dtype;
  spec.dims = meta.dims;
  if (spec.form == TensorForm::kSelectedRows) {
    spec.lod_level.reset();
  } else if (spec.lod_level || meta.lod_level != 0) {
    spec.lod_level = meta.lod_level;
  }
  if (!(spec == var.spec())) var.set_spec(std::move(spec));
}

bool same_dims(llvm::ArrayRef<int64_t> a, llvm::ArrayRef<int64_t> b) {
  if (a.size() != b.size()) return false;
  for (size_t i = 0; i < a.size(); ++i) {
    if (!dims_agree(a[i], b[i])) return false;
  }
  return true;
}

// What flows on: dims that inference knows, with declared dims where it does not.
VarMeta merged(VarMeta inferred, const VarSpec& declared) {
  if (!inferred.has_shape) return meta_of(declared);
  if (declared.has_tensor() && declared.dims.size() == inferred.dims.size()) {
    for (size_t i = 0; i < inferred.dims.size(); ++i) {
      if (inferred.dims[i] < 0) inferred.dims[i] = declared.dims[i];
    }
  }
  return inferred;
}

}  // namespace

VarMeta meta_of(const VarSpec& spec) {
  VarMeta meta;
  meta.kind = spec.kind;
  meta.dtype = spec.dtype;
  meta.dims = spec.dims;
  meta.lod_level = spec.lod_level.value_or(0);
  meta.has_shape = spec.has_tensor();
  return meta;
}

Status infer_op(const OpRegistry& registry, Op& op) {
  const OpDef* const def = registry.find(op.type());
  if (def == nullptr) {
    return Status(StatusCode::kInvalidProgram, "unknown op type '" + op.type().str() + "'")
        .at(op.location());
  }
  if (def->infer_fn() == nullptr) return Ok();
  ProgramMetas metas;
  std::vector<Var*> changed;
  ProgramInferContext context(*def, op, metas, changed);
  Status status = def->infer_fn()(context);
  if (!status.ok()) return std::move(status).at(op.location());
  for (Var* const var : changed) apply(*var, metas.find(op.block(), var->id()));
  return Ok();
}

std::vector<ShapeMismatch> check_shapes(const OpRegistry& registry, const Program& program,
                                        std::vector<Status>& errors) {
  ProgramMetas metas;
  std::vector<ShapeMismatch> mismatches;
  for (const Block& block : program.blocks()) {
    for (const Op& op : block.ops()) {
      const OpDef* const def = registry.find(op.type());
      if (def == nullptr || def->infer_fn() == nullptr) continue;
      std::vector<Var*> changed;
      ProgramInferContext context(*def, op, metas, changed);
      Status status = def->infer_fn()(context);
      if (!status.ok()) {
        errors.push_back(std::move(status).at(op.location()));
        continue;
      }
      for (const Var* const var : changed) {
        VarMeta inferred = metas.find(block, var->id());
        if (inferred.has_shape && var->spec().has_tensor() &&
            !same_dims(inferred.dims, var->dims())) {
          ShapeMismatch mismatch;
          mismatch.place = op.location();
          mismatch.place.var = var->name().str();
          mismatch.declared.assign(var->dims().begin(), var->dims().end());
          mismatch.inferred = inferred.dims;
          mismatches.push_back(std::move(mismatch));
        }
        metas.set(block, var->id(), merged(std::move(inferred), var->spec()));
      }
    }
  }
  return mismatches;
}

}  // namespace millrace::ops
