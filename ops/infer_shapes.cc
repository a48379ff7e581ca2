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

// Finds the declaration that a name stands for.
class HomeFinder {
 public:
  struct Home {
    const Var* var = nullptr;  // null: nothing declares the name
    bool is_likeness = false;  // the var only has the shape of what is named
  };

  // In the block itself or in one around it.
  Home find(const Block& block, NameId name) {
    const Program& program = block.program();
    const Block* b = &block;
    // A parent index always shrinks in a valid program; the counter ends the walk in an invalid
    // one.
    for (size_t steps = 0; b != nullptr && steps <= program.block_count(); ++steps) {
      if (const Var* const var = b->find_var(name)) return {var};
      const Home home = find_in_forward_block(*b, name);
      if (home.var != nullptr) return home;
      b = block_at(program, b->parent());
    }
    return {};
  }

 private:
  using GradNames = llvm::DenseMap<NameId, const Var*>;

  // A gradient block runs inside the scopes of its forward block. So the vars of that one come
  // before those of the parent: a step input of a recurrent op has the name of the whole sequence
  // outside, and so has the gradient of a step output, which has the shape of that output.
  Home find_in_forward_block(const Block& block, NameId name) {
    // Block 0 is what files state for "none".
    if (block.forward_block().value_or(0) <= 0) return {};
    const Block* const forward = block_at(block.program(), *block.forward_block());
    if (forward == nullptr) return {};
    if (const Var* const var = forward->find_var(name)) return {var};
    return {grad_names(*forward).lookup(name), true};
  }

  // Vars of a block by the names of their gradients, as far as the program uses these.
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

// Where inference finds what is known of a name.
class MetaSource {
 public:
  virtual ~MetaSource() = default;
  // Null if nothing is known. Addresses stay valid as long as the source.
  virtual const VarMeta* meta_of_name(NameId name) = 0;
};

// The declarations that one op sees.
class DeclaredMetas final : public MetaSource {
 public:
  explicit DeclaredMetas(const Op& op) : op_(op) {}
  const VarMeta* meta_of_name(NameId name) override {
    std::unique_ptr<VarMeta>& meta = metas_[name];
    if (meta == nullptr) {
      const Var* const var = homes_.find(op_.block(), name).var;
      if (var == nullptr) return nullptr;
      meta = std::make_unique<VarMeta>(meta_of(var->spec()));
    }
    return meta.get();
  }

  Var* declaration(NameId name) {
    const HomeFinder::Home home = homes_.find(op_.block(), name);
    return home.var == nullptr || home.is_likeness ? nullptr
                                                   : home.var->block().find_var(home.var->id());
  }

 private:
  const Op& op_;
  HomeFinder homes_;
  llvm::DenseMap<NameId, std::unique_ptr<VarMeta>> metas_;
};

// Metas of the declared vars of a program: the declarations at first, then what ops set. They are
// kept beside the program, one for each declaration, because a sub-block may declare a name anew.
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

  // Declaration that an op of the block writes under the name, with its meta; null if there is
  // none.
  Entry* target(NameId name) {
    const Cached& cached = look_up(name);
    return cached.is_likeness ? nullptr : cached.entry;
  }

  const VarMeta* meta_of_name(NameId name) override {
    const Entry* const entry = look_up(name).entry;
    return entry == nullptr ? nullptr : &entry->meta;
  }

 private:
  struct Cached {
    uint64_t round = 0;
    Entry* entry = nullptr;
    bool is_likeness = false;
  };

  const Cached& look_up(NameId name) {
    Cached& cached = cache_[static_cast<uint32_t>(name)];
    if (cached.round != round_) {
      const HomeFinder::Home home = homes_.find(*block_, name);
      cached =
          Cached{round_, home.var == nullptr ? nullptr : entry_of(*home.var), home.is_likeness};
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
  HomeFinder homes_;
  std::vector<Cached> cache_;
  llvm::DenseMap<const Var*, Entry*> entries_;
  llvm::SpecificBumpPtrAllocator<Entry> storage_;
};

// What an op sets is held back until its inference has ended, so that inputs stay what they were
// for an op that writes one of them, and a failed op changes nothing.
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
  // a product of dims, one of which is unknown, is any negative number in a file
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
