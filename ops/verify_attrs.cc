#include <cmath>

#include <llvm/ADT/STLExtras.h>

#include "framework/base/errors.h"
#include "ops/old_forms.h"
#include "ops/verify_context.h"

namespace millrace::ops::verify {
namespace {

bool names_a_var(AttrKind kind) {
  return kind == AttrKind::kVar || kind == AttrKind::kVars;
}

// First element outside of [min, max], as text; nullopt if all are inside.
template <typename T>
std::optional<std::string> outside(llvm::ArrayRef<T> values, const AttrDef& def) {
  for (const T value : values) {
    const auto number = static_cast<double>(value);
    if (!(number >= def.min && number <= def.max)) return fmt::format("{}", value);
  }
  return std::nullopt;
}

std::optional<std::string> outside_range(const AttrValue& value, const AttrDef& def) {
  switch (value.kind()) {
    case AttrKind::kInt:
    case AttrKind::kLong:
    case AttrKind::kBool:
      return outside<int64_t>({value.integer()}, def);
    case AttrKind::kFloat:
      return outside<float>({value.float32()}, def);
    case AttrKind::kFloat64:
      return outside<double>({value.float64()}, def);
    case AttrKind::kInts:
      return outside<int32_t>(value.ints(), def);
    case AttrKind::kLongs:
      return outside<int64_t>(value.longs(), def);
    case AttrKind::kFloats:
      return outside<float>(value.floats(), def);
    case AttrKind::kFloat64s:
      return outside<double>(value.float64s(), def);
    default:
      return std::nullopt;
  }
}

std::string range_text(const AttrDef& def) {
  if (std::isinf(def.max)) return fmt::format("at least {}", def.min);
  if (std::isinf(def.min)) return fmt::format("at most {}", def.max);
  return fmt::format("from {} to {}", def.min, def.max);
}

class AttrChecker {
 public:
  AttrChecker(Context& context, const OpView& view) : context_(context), view_(view) {}

  void run() {
    context_.marks.next_round();
    const llvm::ArrayRef<Attr> attrs = view_.op.attrs();
    for (size_t i = 0; i < attrs.size(); ++i) {
      const AttrDef* const own = view_.type.attrs.lookup(attrs[i].name);
      const AttrDef* const def = own != nullptr ? own : context_.find_common(attrs[i].name);
      const int32_t first = context_.marks.mark(attrs[i].name, static_cast<int32_t>(i));
      if (first >= 0) repeated(attrs[first], attrs[i], own != nullptr);
      if (attrs[i].missing_value) without_value(attrs[i], own != nullptr);
      if (def != nullptr) check_value(attrs[i], *def);
      if (names_a_var(attrs[i].value.kind())) check_names(attrs[i]);
    }
    check_required();
    check_renamed();
    check_formula();
  }

 private:
  [[nodiscard]] llvm::StringRef name_of(const Attr& attr) const {
    return view_.op.name_of(attr.name);
  }
  [[nodiscard]] Location at_attr(llvm::StringRef name) const {
    Location where = Context::place(view_);
    where.attr = name.str();
    return where;
  }
  void error(std::string_view rule, const Attr& attr, Status status) {
    context_.error(view_, rule, std::move(status), at_attr(name_of(attr)));
  }

  // Programs of some releases repeat the attributes that select a kernel, always with equal values.
  void repeated(const Attr& first, const Attr& second, bool in_schema) {
    if (context_.counted(view_)) return;
    const bool equal = first.value == second.value;
    const bool common = context_.find_common(first.name) != nullptr;
    Status status = InvalidProgram("attribute '{}' occurs twice{}", text(name_of(second)),
                                   equal ? "" : " with different values");
    if (equal && (common || !in_schema)) {
      if (context_.options.lint)
        context_.warning(view_, "attr-twice", std::move(status), at_attr(name_of(second)));
      return;
    }
    error("attr-twice", second, std::move(status));
  }

  // No kernel reads the old name: the op would run with the default.
  void check_renamed() {
    for (const RenamedAttr& entry : renamed_attrs()) {
      if (!is_op_or_gradient(view_.op.type(), entry.op)) continue;
      if (!view_.op.has_attr(entry.from) || view_.op.has_attr(entry.to)) continue;
      old_form("attr-renamed", entry.from,
               InvalidProgram("attribute '{}' is called '{}' since release 2.0", text(entry.from),
                              text(entry.to)));
    }
  }

  // True if the attribute is present under its old name, which check_renamed() reports.
  bool has_old_name(llvm::StringRef attr) const {
    return llvm::any_of(renamed_attrs(), [&](const RenamedAttr& entry) {
      return entry.to == attr && is_op_or_gradient(view_.op.type(), entry.op) &&
             view_.op.has_attr(entry.from);
    });
  }

  // Release 2.0 changed the formulas of two ops for unusual attribute values. For a program of an
  // older release, the kernels would compute something else than the original did.
  void check_formula() {
    constexpr int64_t kNewFormulas = 2000000;
    const int64_t release = context_.program.version().value_or(0);
    if (release <= 0 || release >= kNewFormulas) return;
    const llvm::StringRef type = view_.op.type();
    const bool leaky = is_op_or_gradient(type, "leaky_relu");
    if (!leaky && !is_op_or_gradient(type, "hard_shrink")) return;
    const llvm::StringRef name = leaky ? "alpha" : "threshold";
    const float value = get_attr_or<float>(view_.op, name, 0.5F);
    if (value >= 0 && (!leaky || value <= 1)) return;
    old_form("old-formula", name,
             InvalidProgram("{} with {} {} has another formula in release {} of the program than "
                            "since release 2.0",
                            text(type), text(name), value, release));
  }

  // Reports a form of an older release, which upgrade-program rewrites.
  void old_form(std::string_view rule, llvm::StringRef attr, Status status) {
    status = std::move(status).with_hint("transpile-program --passes upgrade-program");
    if (context_.options.allow_old_forms) {
      context_.warning(view_, rule, std::move(status), at_attr(attr));
    } else {
      context_.error(view_, rule, std::move(status), at_attr(attr));
    }
  }

  void without_value(const Attr& attr, bool in_schema) {
    Status status = InvalidProgram("attribute '{}' is of type {} but has no value",
                                   text(name_of(attr)), attr_kind_name(attr.value.kind()));
    if (in_schema) {
      error("attr-value", attr, std::move(status));
    } else {
      context_.warning(view_, "attr-value", std::move(status), at_attr(name_of(attr)));
    }
  }

  void check_value(const Attr& attr, const AttrDef& def) {
    const bool from_var = names_a_var(attr.value.kind()) && !names_a_var(def.kind);
    const bool from_none = attr.value.kind() == AttrKind::kVars && attr.value.strings().empty();
    if (from_var && !from_none) return;  // the value is known at run time only
    if (attr.value.kind() != def.kind) {
      if (!attr_kind_converts(attr.value.kind(), def.kind)) {
        const llvm::StringRef type = view_.op.type();
        if (is_old_kind(type, name_of(attr), attr.value.kind())) {
          old_form("attr-type", name_of(attr),
                   InvalidProgram("attribute '{}' is a {} since release 2.0 (found {})",
                                  text(name_of(attr)), attr_kind_name(def.kind),
                                  attr_kind_name(attr.value.kind())));
          return;
        }
        error("attr-type", attr,
              InvalidProgram("attribute '{}' has the wrong type (expected {}, found {})",
                             text(name_of(attr)), attr_kind_name(def.kind),
                             attr_kind_name(attr.value.kind())));
        return;
      }
      if (!convert_attr(attr.value, def.kind)) {
        error("attr-type", attr,
              InvalidProgram("attribute '{}' of type {} does not fit the expected type {}",
                             text(name_of(attr)), attr_kind_name(attr.value.kind()),
                             attr_kind_name(def.kind)));
        return;
      }
    }
    if (!std::isinf(def.min) || !std::isinf(def.max)) {
      if (const auto bad = outside_range(attr.value, def)) {
        error("attr-range", attr,
              InvalidProgram("attribute '{}' is {} (expected {})", text(name_of(attr)), *bad,
                             range_text(def)));
      }
    }
    if (!def.choices.empty()) check_choice(attr, def);
  }

  void check_choice(const Attr& attr, const AttrDef& def) {
    if (attr.value.kind() != AttrKind::kString) return;
    const std::string found = attr.value.string().str();
    if (llvm::is_contained(def.choices, found)) return;
    std::string choices;
    for (const std::string& choice : def.choices)
      choices += (choices.empty() ? "'" : ", '") + choice + "'";
    error("attr-choice", attr,
          InvalidProgram("attribute '{}' is '{}' (expected one of {})", text(name_of(attr)),
                         found.substr(0, 256), choices));
  }

  // Attributes of the newest releases may name vars that hold the value.
  void check_names(const Attr& attr) {
    auto check = [&](llvm::StringRef name) {
      if (view_.op.block().find_var_recursive(name) != nullptr) return;
      error("undeclared-var", attr,
            InvalidProgram("attribute '{}' names var '{}', which is not declared",
                           text(name_of(attr)), text(name.take_front(256))));
    };
    if (attr.value.kind() == AttrKind::kVar) {
      check(attr.value.string());
    } else {
      for (const std::string& name : attr.value.strings()) check(name);
    }
  }

  void check_required() {
    if (view_.type.def == nullptr) return;
    for (const AttrDef& def : view_.type.def->attrs()) {
      if (def.fallback || view_.op.has_attr(def.name) || has_old_name(def.name)) continue;
      context_.error(view_, "attr-missing",
                     InvalidProgram("attribute '{}' is missing (expected {})", text(def.name),
                                    attr_kind_name(def.kind)),
                     at_attr(def.name));
    }
  }

  Context& context_;
  const OpView& view_;
};

}  // namespace

void check_attrs(Context& context, const OpView& view) {
  AttrChecker(context, view).run();
}

}  // namespace millrace::ops::verify
