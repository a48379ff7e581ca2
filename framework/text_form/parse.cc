#include "framework/text_form/parse.h"

#include "framework/base/errors.h"
#include "framework/export.h"
#include "framework/text_form/cursor.h"
#include "framework/text_form/print.h"
#include "framework/wire.h"

namespace millrace {
namespace text_form {
namespace {

using Bytes = std::shared_ptr<const std::string>;

Bytes share(std::string bytes) {
  return std::make_shared<const std::string>(std::move(bytes));
}

// Wire bytes annotated on an element; attached after the whole text has been read.
template <typename Element>
struct Annotation {
  Element* element;
  size_t begin;
  size_t size;
};

class Parser {
 public:
  Parser(llvm::StringRef text, Program& program) : in_(text), program_(program) {}

  Status run() {
    MILLRACE_RETURN_IF_ERROR(in_.advance());
    while (true) {
      MILLRACE_RETURN_IF_ERROR(in_.skip_newlines());
      if (in_.token().kind == TokenKind::kEnd) break;
      MILLRACE_RETURN_IF_ERROR(statement());
    }
    if (program_.block_count() == 0) return in_.expected("'block 0 {'");
    attach_wires();
    return Ok();
  }

  [[nodiscard]] const Location& where() const { return where_; }

 private:
  Status statement() {
    const Token word = in_.token();
    if (word.is_word("block")) return block();
    if (program_.block_count() > 0) return in_.expected("'block' or the end of the text");
    if (word.is_word("version") && !program_.has_version()) return version();
    if (word.is_word("op_versions") && !program_.has_op_versions()) return op_versions();
    if (word.is_word("unknown") && program_.unknown() == nullptr) {
      MILLRACE_RETURN_IF_ERROR(in_.advance());
      MILLRACE_ASSIGN_OR_RETURN(std::string bytes, in_.hex_bytes("unknown fields"));
      program_.set_unknown(share(std::move(bytes)));
      return end_of_line();
    }
    return in_.expected("one 'version', 'op_versions' or 'unknown', or 'block'");
  }

  Status end_of_line() {
    if (in_.token().kind == TokenKind::kEnd) return Ok();
    if (in_.token().kind != TokenKind::kNewline) return in_.expected("the end of the line");
    return in_.advance();
  }

  Status version() {
    MILLRACE_RETURN_IF_ERROR(in_.advance());
    std::optional<int64_t> number;
    if (in_.token().is_word("absent")) {
      MILLRACE_RETURN_IF_ERROR(in_.advance());
    } else {
      MILLRACE_ASSIGN_OR_RETURN(number, in_.int64("a version number or 'absent'"));
    }
    program_.set_version(true, number);
    return end_of_line();
  }

  Status op_versions() {
    MILLRACE_RETURN_IF_ERROR(in_.advance());
    MILLRACE_RETURN_IF_ERROR(in_.take('{', "'{'"));
    std::vector<OpVersion> entries;
    while (true) {
      MILLRACE_RETURN_IF_ERROR(in_.skip_newlines());
      MILLRACE_ASSIGN_OR_RETURN(const bool done, in_.take_if('}'));
      if (done) break;
      OpVersion entry;
      MILLRACE_ASSIGN_OR_RETURN(entry.op, in_.name("an op type and its version, or '}'"));
      MILLRACE_ASSIGN_OR_RETURN(entry.version, in_.int32("the version of the op"));
      entries.push_back(std::move(entry));
      if (!in_.token().is('}')) MILLRACE_RETURN_IF_ERROR(end_of_line());
    }
    program_.set_op_versions(true, std::move(entries));
    return end_of_line();
  }

  Status block() {
    MILLRACE_RETURN_IF_ERROR(in_.advance());
    where_ = Location();
    where_.block = static_cast<int>(program_.block_count());
    if (in_.token().text != std::to_string(where_.block))
      return in_.expected(fmt::format("block index {}", where_.block));
    MILLRACE_RETURN_IF_ERROR(in_.advance());
    Block& block = program_.add_block(-1);
    MILLRACE_RETURN_IF_ERROR(block_header(block));
    while (true) {
      MILLRACE_RETURN_IF_ERROR(in_.skip_newlines());
      MILLRACE_ASSIGN_OR_RETURN(const bool done, in_.take_if('}'));
      if (done) break;
      MILLRACE_RETURN_IF_ERROR(is_declaration() ? var(block) : op(block));
      if (!in_.token().is('}')) MILLRACE_RETURN_IF_ERROR(end_of_line());
    }
    where_ = Location();
    return end_of_line();
  }

  Status block_header(Block& block) {
    bool has_parent = block.index() == 0;
    while (!in_.token().is('{')) {
      const Token key = in_.token();
      if (key.kind != TokenKind::kWord) return in_.expected("'{'");
      MILLRACE_RETURN_IF_ERROR(in_.advance());
      if (key.text == "unknown") {
        MILLRACE_ASSIGN_OR_RETURN(std::string bytes, in_.hex_bytes("unknown fields"));
        block.set_unknown(share(std::move(bytes)));
        continue;
      }
      MILLRACE_RETURN_IF_ERROR(in_.take('=', "'=' and a block index"));
      MILLRACE_ASSIGN_OR_RETURN(const int32_t index, in_.int32("a block index"));
      if (key.text == "parent") {
        block.set_parent(index);
        has_parent = true;
      } else if (key.text == "idx") {
        block.set_stated_index(index);
      } else if (key.text == "forward") {
        block.set_forward_block(index);
      } else {
        return in_.wrong(
            fmt::format("expected parent, idx, forward, unknown or '{{' after the "
                        "block index, found {}",
                        key.shown()));
      }
    }
    if (!has_parent) return in_.expected("parent=N for a block other than block 0");
    return in_.advance();
  }

  [[nodiscard]] bool is_declaration() const {
    const Token& token = in_.token();
    return token.is_word("var") || token.is_word("param") || token.is_word("persist");
  }

  // ---- vars

  Status var(Block& block) {
    const Token keyword = in_.token();
    MILLRACE_RETURN_IF_ERROR(in_.advance());
    MILLRACE_ASSIGN_OR_RETURN(const std::string name, in_.name("a var name"));
    where_.var = name;
    MILLRACE_RETURN_IF_ERROR(in_.take(':', "':' after the var name"));
    VarSpec spec;
    if (!keyword.is_word("var")) spec.persistable = true;
    if (keyword.is_word("param")) spec.is_parameter = true;
    MILLRACE_RETURN_IF_ERROR(var_type(spec));
    std::optional<std::string> wire;
    while (!at_end_of_statement()) MILLRACE_RETURN_IF_ERROR(var_fact(spec, wire));
    Var& var = block.add_declaration(name, std::move(spec));
    if (wire) var_wires_.push_back({&var, keep(*wire), wire->size()});
    where_.var.clear();
    return Ok();
  }

  [[nodiscard]] bool at_end_of_statement() const {
    const Token& token = in_.token();
    return token.kind == TokenKind::kNewline || token.kind == TokenKind::kEnd || token.is('}');
  }

  // Parses "?" and a number, for enum members that have no name.
  StatusOr<std::optional<int32_t>> unnamed() {
    MILLRACE_ASSIGN_OR_RETURN(const bool is_number, in_.take_if('?'));
    std::optional<int32_t> number;
    if (is_number) {
      MILLRACE_ASSIGN_OR_RETURN(number, in_.int32("a number after ?"));
    }
    return number;
  }

  [[nodiscard]] std::string_view word() const {
    if (in_.token().kind != TokenKind::kWord) return {};
    return {in_.token().text.data(), in_.token().text.size()};
  }

  // [KIND ["as" FORM]] [DTYPE "(" dims ")"]; KIND and DTYPE are names or "?" and a number.
  Status var_type(VarSpec& spec) {
    std::optional<VarKind> kind;
    std::optional<DType> dtype;
    MILLRACE_ASSIGN_OR_RETURN(const std::optional<int32_t> number, unnamed());
    if (!number) {
      kind = parse_var_kind(word());
      if (kind) MILLRACE_RETURN_IF_ERROR(in_.advance());
    } else if (in_.token().is('(')) {  // dims follow an element type
      dtype = static_cast<DType>(*number);
    } else {
      kind = static_cast<VarKind>(*number);
    }
    spec.kind = kind.value_or(VarKind::kLodTensor);
    spec.form = usual_form(spec.kind);
    bool has_form = false;
    if (kind && in_.token().is_word("as")) {
      MILLRACE_RETURN_IF_ERROR(in_.advance());
      const std::optional<TensorForm> form = parse_form(word());
      if (!form) return in_.expected("a tensor form, for example lod_tensor");
      spec.form = *form;
      has_form = true;
      MILLRACE_RETURN_IF_ERROR(in_.advance());
    }
    if (!dtype) {
      MILLRACE_ASSIGN_OR_RETURN(const std::optional<int32_t> other, unnamed());
      dtype = other ? static_cast<DType>(*other) : parse_dtype(word());
      if (dtype && !other) MILLRACE_RETURN_IF_ERROR(in_.advance());
    }
    if (!dtype) {
      if (!kind) return in_.expected("a var type such as f32(784, 200), lod_tensor or raw");
      if (has_form) return in_.expected("an element type such as f32");
      spec.form = TensorForm::kNone;
      return Ok();
    }
    spec.dtype = *dtype;
    return dims(spec.dims);
  }

  Status dims(Dims& dims) {
    MILLRACE_RETURN_IF_ERROR(in_.take('(', "'(' and the dims"));
    while (!in_.token().is(')')) {
      MILLRACE_ASSIGN_OR_RETURN(const int64_t dim, in_.int64("a dim or ')'"));
      dims.push_back(dim);
      MILLRACE_ASSIGN_OR_RETURN(const bool more, in_.take_if(','));
      if (!more) break;
    }
    return in_.take(')', "',' or ')'");
  }

  // Parses one property after the type: lod=N, a flag, !flag, or bytes.
  Status var_fact(VarSpec& spec, std::optional<std::string>& wire) {
    MILLRACE_ASSIGN_OR_RETURN(const bool negated, in_.take_if('!'));
    const Token fact = in_.token();
    const auto flag = [&](std::optional<bool>& target) {
      target = !negated;
      return in_.advance();
    };
    if (fact.is_word("persistable")) return flag(spec.persistable);
    if (fact.is_word("need_check_feed")) return flag(spec.need_check_feed);
    if (fact.is_word("is_parameter")) return flag(spec.is_parameter);
    if (fact.is_word("stop_gradient")) return flag(spec.stop_gradient);
    const bool is_lod = fact.is_word("lod");
    const bool is_bytes =
        fact.is_word("type_extra") || fact.is_word("extra") || fact.is_word("wire");
    if (negated || (!is_lod && !is_bytes)) {
      return in_.expected(
          "persistable, need_check_feed, is_parameter, stop_gradient, lod=N or the end of the "
          "line");
    }
    MILLRACE_RETURN_IF_ERROR(in_.advance());
    if (is_lod) {
      MILLRACE_RETURN_IF_ERROR(in_.take('=', "'=' and the number of LoD levels"));
      MILLRACE_ASSIGN_OR_RETURN(spec.lod_level, in_.int32("the number of LoD levels"));
      return Ok();
    }
    MILLRACE_ASSIGN_OR_RETURN(std::string bytes, in_.hex_bytes(fact.text.str()));
    if (fact.is_word("wire")) {
      wire = std::move(bytes);
    } else {
      (fact.is_word("extra") ? spec.extra : spec.type_extra) = share(std::move(bytes));
    }
    return Ok();
  }

  // ---- ops

  Status op(Block& block) {
    where_.op = static_cast<int64_t>(block.op_count());
    MILLRACE_ASSIGN_OR_RETURN(const std::string type, in_.name("var, param, persist or an op"));
    where_.op_type = type;
    Op& op = block.append_op(type);
    bool is_output = false;
    while (!at_end_of_statement()) {
      if (in_.token().kind == TokenKind::kArrow) {
        if (is_output) return in_.expected("a slot ('->' may occur only once)");
        is_output = true;
        MILLRACE_RETURN_IF_ERROR(in_.advance());
        MILLRACE_RETURN_IF_ERROR(in_.skip_newlines());
      } else if (in_.token().is('{')) {
        MILLRACE_RETURN_IF_ERROR(attrs(op));
      } else if (in_.token().kind == TokenKind::kWord && is_keyword(in_.token().text)) {
        MILLRACE_RETURN_IF_ERROR(op_fact(op));
      } else if (in_.token().is('!')) {
        MILLRACE_RETURN_IF_ERROR(op_fact(op));
      } else {
        MILLRACE_RETURN_IF_ERROR(slot(op, is_output));
      }
    }
    where_.op = -1;
    where_.op_type.clear();
    return Ok();
  }

  Status slot(Op& op, bool is_output) {
    MILLRACE_ASSIGN_OR_RETURN(const std::string name,
                              in_.name("a slot, '->', '{' or the end of the line"));
    MILLRACE_RETURN_IF_ERROR(in_.take('=', "'=' after the slot"));
    std::vector<std::string> names;
    MILLRACE_ASSIGN_OR_RETURN(const bool is_empty, in_.take_if('['));
    if (is_empty) {
      MILLRACE_RETURN_IF_ERROR(in_.take(']', "']' of an empty slot"));
    } else {
      while (true) {
        MILLRACE_ASSIGN_OR_RETURN(std::string arg, in_.name("a var name or []"));
        names.push_back(std::move(arg));
        MILLRACE_ASSIGN_OR_RETURN(const bool more, in_.take_if(','));
        if (!more) break;
        MILLRACE_RETURN_IF_ERROR(in_.skip_newlines());
      }
    }
    llvm::SmallVector<llvm::StringRef, 8> views(names.begin(), names.end());
    op.add_slot(is_output, name, views);
    return Ok();
  }

  Status attrs(Op& op) {
    MILLRACE_RETURN_IF_ERROR(in_.advance());
    while (true) {
      MILLRACE_RETURN_IF_ERROR(in_.skip_newlines());
      if (in_.token().is('}')) break;
      MILLRACE_ASSIGN_OR_RETURN(where_.attr, in_.name("an attribute or '}'"));
      MILLRACE_RETURN_IF_ERROR(in_.take(':', "':' after the attribute"));
      MILLRACE_RETURN_IF_ERROR(in_.skip_newlines());
      Attr attr{program_.names().intern(where_.attr), AttrValue(), false, nullptr};
      MILLRACE_ASSIGN_OR_RETURN(attr.value, parse_value(in_, attr.missing_value));
      if (in_.token().is_word("unknown")) {
        MILLRACE_RETURN_IF_ERROR(in_.advance());
        MILLRACE_ASSIGN_OR_RETURN(std::string bytes, in_.hex_bytes("unknown fields"));
        attr.unknown = share(std::move(bytes));
      }
      op.add_attr(std::move(attr));
      MILLRACE_RETURN_IF_ERROR(in_.skip_newlines());
      MILLRACE_ASSIGN_OR_RETURN(const bool more, in_.take_if(','));
      if (!more) break;
    }
    where_.attr.clear();
    return in_.take('}', "',' or '}'");
  }

  // Parses target, !target, unknown="..." or wire="...".
  Status op_fact(Op& op) {
    MILLRACE_ASSIGN_OR_RETURN(const bool negated, in_.take_if('!'));
    const Token fact = in_.token();
    if (fact.is_word("target")) {
      op.set_is_target(!negated);
      return in_.advance();
    }
    if (negated || (!fact.is_word("unknown") && !fact.is_word("wire")))
      return in_.expected("a slot, target, unknown, wire or the end of the line");
    MILLRACE_RETURN_IF_ERROR(in_.advance());
    MILLRACE_ASSIGN_OR_RETURN(std::string bytes, in_.hex_bytes(fact.text.str()));
    if (fact.is_word("unknown")) {
      op.set_unknown(share(std::move(bytes)));
    } else {
      op_wires_.push_back({&op, keep(bytes), bytes.size()});
    }
    return Ok();
  }

  // ---- wire bytes

  size_t keep(const std::string& bytes) {
    const size_t begin = wires_.size();
    wires_ += bytes;
    return begin;
  }

  // A program that contains only one encoded element.
  static std::unique_ptr<Program> decode(uint32_t field, llvm::StringRef bytes) {
    std::string block;
    wire::put_int(block, wire::block_field::kIdx, 0);
    wire::put_int(block, wire::block_field::kParentIdx, -1);
    wire::put_bytes(block, field, bytes);
    std::string program;
    wire::put_bytes(program, wire::program_field::kBlocks, block);
    StatusOr<std::unique_ptr<Program>> decoded = import_program(share(std::move(program)), "");
    return decoded.ok() ? std::move(decoded).value() : nullptr;
  }

  // The wire bytes are attached only if they still encode the element. After an edit of the text
  // the element wins.
  void attach_wires() {
    if (wires_.empty()) return;
    const Bytes source = share(std::move(wires_));
    const auto bytes_of = [&](const auto& annotation) {
      return llvm::StringRef(*source).substr(annotation.begin, annotation.size);
    };
    for (const Annotation<Op>& annotation : op_wires_) {
      const auto decoded = decode(wire::block_field::kOps, bytes_of(annotation));
      if (decoded != nullptr &&
          encode_op(decoded->root().front()) == encode_op(*annotation.element))
        Block::set_wire(*annotation.element, bytes_of(annotation));
    }
    for (const Annotation<Var>& annotation : var_wires_) {
      const auto decoded = decode(wire::block_field::kVars, bytes_of(annotation));
      if (decoded != nullptr &&
          encode_var(*decoded->root().vars().begin()) == encode_var(*annotation.element))
        Block::set_wire(*annotation.element, bytes_of(annotation));
    }
    program_.set_source(source);
    program_.touch();  // the source bytes are single elements, not the whole program
  }

  Cursor in_;
  Program& program_;
  Location where_;
  std::string wires_;
  std::vector<Annotation<Op>> op_wires_;
  std::vector<Annotation<Var>> var_wires_;
};

Status check_version(llvm::StringRef text) {
  llvm::StringRef line = text.split('\n').first;
  if (!line.consume_front("# millrace program ")) return Ok();
  int64_t version = 0;
  if (line.consumeInteger(10, version) || version == 1) return Ok();
  return Unimplemented("version {} of the text form; this build reads version 1", version);
}

}  // namespace
}  // namespace text_form

bool is_text_form(const std::string& bytes) {
  return !bytes.empty() && bytes.front() == '#';
}

StatusOr<std::unique_ptr<Program>> parse_program(const std::string& text, const std::string& file,
                                                 const ImportOptions& options) {
  if (static_cast<uint64_t>(text.size()) > static_cast<uint64_t>(options.max_bytes)) {
    return Status(StatusCode::kResource,
                  fmt::format("program text of {} bytes is above the limit of {} bytes",
                              text.size(), options.max_bytes))
        .in_file(file);
  }
  MILLRACE_RETURN_IF_ERROR(text_form::check_version(text).in_file(file));
  auto program = std::make_unique<Program>();
  text_form::Parser parser(text, *program);
  Status status = parser.run();
  if (!status.ok()) {
    Location where = parser.where();
    where.file = file;
    return std::move(status).at(std::move(where));
  }
  return program;
}

}  // namespace millrace
