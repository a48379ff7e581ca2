#include "ops/infer_shapes.h"

#include <algorithm>

#include <llvm/ADT/DenseMap.h>
#include <llvm/Support/Allocator.h>

#include "framework/names.h"
#include "ops/infer_helpers.h"

namespace millrace::ops {
namespace {

const Block* block_at(const Program& program, int32_t index) {
  if (index < 0 || static_cast<size_t>(index) >= program.block_count()) return nullptr;
  return &program.block(index);
}

// Finds the declaration of a name.
class DeclarationFinder {
 public:
  struct Found {
    const Var* var = nullptr;    // null: the name is not declared
    bool is_same_shape = false;  // the var is another one with the same shape
  };

  // Searches the block and its enclosing blocks.
  Found find(const Block& block, NameId name) {
    const Program& program = block.program();
    const Block* b = &block;
    // In a valid program a parent has a smaller index; the counter ends the walk in an invalid one.
    for (size_t steps = 0; b != nullptr && steps <= program.block_count(); ++steps) {
      if (const Var* const var = b->find_var(name)) return {var};
      const Found found = find_in_forward_block(*b, name);
      if (found.var != nullptr) return found;
      b = block_at(program, b->parent());
    }
    return {};
  }

 private:
  using GradNames = llvm::DenseMap<NameId, const Var*>;

  // A gradient block runs inside the scopes of its forward block, so vars of the forward block hide
  // those of the parent. In a recurrent op, the input of a time step has the name of the whole
  // sequence outside. The gradient of a time step's output has the shape of that output; outside,
  // its name is that of the gradient of the whole sequence.
  Found find_in_forward_block(const Block& block, NameId name) {
    // Files use 0 for "no forward block".
    if (block.forward_block().value_or(0) <= 0) return {};
    const Block* const forward = block_at(block.program(), *block.forward_block());
    if (forward == nullptr) return {};
    if (const Var* const var = forward->find_var(name)) return {var};
    return {grad_names(*forward).lookup(name), true};
  }

  // Vars of a block by the names of their gradients, for the names that the program contains.
  const GradNames& grad_names(const Block& block) {
    std::unique_ptr<GradNames>& grads = grads_[block.index()];
    if (grads == nullptr) {
      grads = std::make_unique<GradNames>();
      for (const Var& var : block.vars()) {
        if (const auto id = block.program().names().find(names::grad(var.name())))
          grads->try_emplace(*id, &var);
      }
    }
    return *grads;
  }

  llvm::DenseMap<int32_t, std::unique_ptr<GradNames>> grads_;
};

// Source of the metas that inference reads.
class MetaSource {
 public:
  virtual ~MetaSource() = default;
  // Null if nothing is known. The address stays valid as long as the source exists.
  virtual const VarMeta* meta_of_name(NameId name) = 0;
};

// Metas from the declarations visible to one op.
class DeclaredMetas final : public MetaSource {
 public:
  explicit DeclaredMetas(const Op& op) : op_(op) {}
  const VarMeta* meta_of_name(NameId name) override {
    std::unique_ptr<VarMeta>& meta = metas_[name];
    if (meta == nullptr) {
      const Var* const var = declarations_.find(op_.block(), name).var;
      if (var == nullptr) return nullptr;
      meta = std::make_unique<VarMeta>(meta_of(var->spec()));
    }
    return meta.get();
  }

  Var* declaration(NameId name) {
    const DeclarationFinder::Found found = declarations_.find(op_.block(), name);
    return found.var == nullptr || found.is_same_shape
               ? nullptr
               : found.var->block().find_var(found.var->id());
  }

 private:
  const Op& op_;
  DeclarationFinder declarations_;
  llvm::DenseMap<NameId, std::unique_ptr<VarMeta>> metas_;
};

// Metas of the declared vars of a program: initially as declared, then as set by ops. There is one
// meta per declaration, not per name, because a sub-block may declare a name again.
class ProgramMetas final : public MetaSource {
 public:
  explicit ProgramMetas(const Program& program) : cache_(program.names().size()) {}

  struct Entry {
    const Var* var;
    VarMeta meta;
  };

  // Chooses the block from which names are looked up.
  void enter(const Block& block) {
    block_ = &block;
    ++round_;
  }

  // The declaration that an op of the block writes under the name, with its meta; null if none.
  Entry* target(NameId name) {
    const Cached& cached = look_up(name);
    return cached.is_same_shape ? nullptr : cached.entry;
  }

  const VarMeta* meta_of_name(NameId name) override {
    const Entry* const entry = look_up(name).entry;
    return entry == nullptr ? nullptr : &entry->meta;
  }

 private:
  struct Cached {
    uint64_t round = 0;
    Entry* entry = nullptr;
    bool is_same_shape = false;
  };

  const Cached& look_up(NameId name) {
    Cached& cached = cache_[static_cast<uint32_t>(name)];
    if (cached.round != round_) {
      const DeclarationFinder::Found found = declarations_.find(*block_, name);
      cached = Cached{round_, found.var == nullptr ? nullptr : entry_of(*found.var),
                      found.is_same_shape};
    }
    return cached;
  }

  Entry* entry_of(const Var& var) {
    Entry*& entry = entries_[&var];
    if (entry == nullptr) entry = new (storage_.Allocate()) Entry{&var, meta_of(var.spec())};
    return entry;
  }

  const Block* block_ = nullptr;
  uint64_t round_ = 0;
  DeclarationFinder declarations_;
  std::vector<Cached> cache_;
  llvm::DenseMap<const Var*, Entry*> entries_;
  llvm::SpecificBumpPtrAllocator<Entry> storage_;
};

// Collects the metas that an op sets until its inference has finished. Thus an op that writes one
// of its inputs still reads the old meta, and a failed inference changes nothing.
class ProgramInferContext final : public InferContext {
 public:
  using Results = std::vector<std::pair<NameId, VarMeta>>;

  ProgramInferContext(const OpDef& def, const Op& op, MetaSource& metas, Results& results)
      : InferContext(def, op), metas_(metas), results_(results) {}

 protected:
  const VarMeta& meta(NameId name) const override {
    const VarMeta* const known = metas_.meta_of_name(name);
    return known == nullptr ? unknown_ : *known;
  }
  void set_meta(NameId name, VarMeta meta) override {
    results_.emplace_back(name, std::move(meta));
  }

 private:
  MetaSource& metas_;
  Results& results_;
  VarMeta unknown_ = [] {
    VarMeta meta;
    meta.has_shape = false;
    return meta;
  }();
};

// Writes an inferred meta to a declaration. Flags do not change, nor does an absent LoD level if
// the inferred one is 0.
void apply(Var& var, const VarMeta& meta) {
  VarSpec spec = var.spec();
  if (!meta.has_shape) return;
  if (meta.kind != spec.kind && spec.kind != VarKind::kLodTensor)
    return;  // keep an explicitly declared special kind
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

// The meta that later ops see: the inferred dims, with declared dims where inference knows none.
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
  // in a file, a product of dims with an unknown factor can be any negative number
  for (int64_t& dim : meta.dims) dim = std::max<int64_t>(dim, -1);
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
  DeclaredMetas metas(op);
  ProgramInferContext::Results results;
  ProgramInferContext context(*def, op, metas, results);
  Status status = def->infer_fn()(context);
  if (!status.ok()) return std::move(status).at(op.location());
  for (const auto& [name, meta] : results) {
    if (Var* const var = metas.declaration(name)) apply(*var, meta);
  }
  return Ok();
}

void observe_shapes(const OpRegistry& registry, const Program& program, ShapeObserver& observer) {
  ProgramMetas metas(program);
  std::vector<std::optional<const OpDef*>> defs(program.names().size());
  ProgramInferContext::Results results;
  for (const Block& block : program.blocks()) {
    metas.enter(block);
    int64_t index = -1;
    for (const Op& op : block.ops()) {
      ++index;
      auto& def = defs[static_cast<uint32_t>(op.type_id())];
      if (!def) def = registry.find(op.type());
      if (*def == nullptr || !observer.wants(op)) continue;
      results.clear();
      ProgramInferContext context(**def, op, metas, results);
      Status status = observer.check(context);
      if (status.ok() && (*def)->infer_fn() != nullptr) status = (*def)->infer_fn()(context);
      if (!status.ok()) {
        observer.failed(context, index, std::move(status));
        continue;
      }
      for (auto& [name, meta] : results) {
        ProgramMetas::Entry* const entry = metas.target(name);
        if (entry == nullptr) continue;
        observer.inferred(op, index, *entry->var, meta);
        const VarSpec& declared = entry->var->spec();
        if (meta.has_shape && declared.has_tensor() && !same_dims(meta.dims, declared.dims))
          observer.mismatch(op, index, *entry->var, meta);
        entry->meta = merged(std::move(meta), declared);
      }
    }
  }
}

namespace {

class ShapeLists final : public ShapeObserver {
 public:
  ShapeLists(std::vector<Status>& errors, std::vector<ShapeMismatch>& mismatches)
      : errors_(errors), mismatches_(mismatches) {}

  void failed(const InferContext& ctx, int64_t index, Status status) override {
    errors_.push_back(std::move(status).at(place(ctx.op(), index)));
  }
  void mismatch(const Op& op, int64_t index, const Var& var, const VarMeta& meta) override {
    ShapeMismatch mismatch;
    mismatch.place = place(op, index);
    mismatch.place.var = var.name().str();
    mismatch.declared.assign(var.dims().begin(), var.dims().end());
    mismatch.inferred = meta.dims;
    mismatches_.push_back(std::move(mismatch));
  }

 private:
  static Location place(const Op& op, int64_t index) {
    Location where;
    where.block = op.block().index();
    where.op = index;
    where.op_type = op.type().str();
    where.source = source_line(op);
    return where;
  }

  std::vector<Status>& errors_;
  std::vector<ShapeMismatch>& mismatches_;
};

}  // namespace

std::vector<ShapeMismatch> check_shapes(const OpRegistry& registry, const Program& program,
                                        std::vector<Status>& errors) {
  std::vector<ShapeMismatch> mismatches;
  ShapeLists lists(errors, mismatches);
  observe_shapes(registry, program, lists);
  return mismatches;
}

}  // namespace millrace::ops
