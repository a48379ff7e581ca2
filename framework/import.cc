#include "framework/import.h"

#include <bit>

#include <llvm/ADT/StringMap.h>

#include "framework/base/errors.h"
#include "framework/import_attr.h"
#include "framework/wire.h"

namespace millrace {
namespace {

using wire::Field;
using wire::Reader;
using wire::Type;

// Wraps fields that have no member in the IR; null if there are none.
std::shared_ptr<const std::string> shared_or_null(std::string bytes) {
  if (bytes.empty()) return nullptr;
  return std::make_shared<const std::string>(std::move(bytes));
}

// Reads one program. Errors carry the byte offset; callers add block, op and var.
class Importer {
 public:
  Importer(llvm::StringRef bytes, Program& program)
      : begin_(bytes.data()), program_(program), attrs_(program.names()) {}

  Status run(llvm::StringRef bytes) {
    Reader reader(bytes);
    Field field;
    std::string unknown;
    while (reader.next(field)) {
      switch (field.number) {
        case wire::program_field::kBlocks:
          MILLRACE_RETURN_IF_ERROR(read_block(field));
          break;
        case wire::program_field::kVersion:
          MILLRACE_RETURN_IF_ERROR(read_version(field));
          break;
        case wire::program_field::kOpVersionMap:
          MILLRACE_RETURN_IF_ERROR(read_op_versions(field));
          break;
        default:
          unknown.append(field.encoded.data(), field.encoded.size());
      }
    }
    MILLRACE_RETURN_IF_ERROR(finish(reader, "program"));
    if (has_op_versions_) program_.set_op_versions(true, std::move(op_versions_));
    if (program_.block_count() == 0) {
      return InvalidProgram("malformed program: no block found in {} bytes", bytes.size())
          .with_hint("is this a serialized ProgramDesc (__model__, .pdmodel)?");
    }
    if (!unknown.empty())
      program_.set_unknown(std::make_shared<const std::string>(std::move(unknown)));
    return Ok();
  }

 private:
  [[nodiscard]] size_t offset(const char* position) const {
    return static_cast<size_t>(position - begin_);
  }

  // The error that stopped the reader; ok if it reached the end.
  [[nodiscard]] Status finish(const Reader& reader, std::string_view message) const {
    if (!reader.failed()) return Ok();
    return InvalidProgram("malformed program: cannot parse {} message at byte {}: {}", message,
                          offset(reader.position()), reader.error());
  }

  [[nodiscard]] Status wrong_type(const Field& field, std::string_view what) const {
    return InvalidProgram("malformed program: {} at byte {} has wire type {}", what,
                          offset(field.encoded.data()), static_cast<uint32_t>(field.type));
  }

  Status expect(const Field& field, Type type, std::string_view what) const {
    return field.type == type ? Ok() : wrong_type(field, what);
  }

  Status read_version(const Field& field) {
    MILLRACE_RETURN_IF_ERROR(expect(field, Type::kBytes, "version"));
    Reader reader(field.bytes);
    Field member;
    std::optional<int64_t> version;
    while (reader.next(member)) {
      if (member.number == 1 && member.type == Type::kVarint)
        version = static_cast<int64_t>(member.varint);
    }
    MILLRACE_RETURN_IF_ERROR(finish(reader, "version"));
    program_.set_version(true, version);
    return Ok();
  }

  Status read_op_versions(const Field& field) {
    MILLRACE_RETURN_IF_ERROR(expect(field, Type::kBytes, "op_version_map"));
    Reader reader(field.bytes);
    Field pair;
    while (reader.next(pair)) {
      if (pair.number != 1) continue;
      MILLRACE_RETURN_IF_ERROR(expect(pair, Type::kBytes, "op version pair"));
      OpVersion entry;
      Reader members(pair.bytes);
      Field member;
      while (members.next(member)) {
        if (member.number == 1 && member.type == Type::kBytes) entry.op = member.bytes.str();
        if (member.number == 2 && member.type == Type::kBytes) {
          Reader inner(member.bytes);
          Field number;
          while (inner.next(number)) {
            if (number.number == 1) entry.version = static_cast<int32_t>(number.varint);
          }
          MILLRACE_RETURN_IF_ERROR(finish(inner, "op version"));
        }
      }
      MILLRACE_RETURN_IF_ERROR(finish(members, "op version pair"));
      op_versions_.push_back(std::move(entry));
    }
    MILLRACE_RETURN_IF_ERROR(finish(reader, "op_version_map"));
    has_op_versions_ = true;
    return Ok();
  }

  Status read_block(const Field& field) {
    MILLRACE_RETURN_IF_ERROR(expect(field, Type::kBytes, "block"));
    Block& block = program_.add_block(-1);
    Location where;
    where.block = block.index();
    bool has_index = false;
    bool has_parent = false;
    Reader reader(field.bytes);
    Field member;
    std::string unknown;
    while (reader.next(member)) {
      Status status = read_block_field(block, member, has_index, has_parent, unknown);
      if (!status.ok()) {
        if (status.location().block >= 0) return status;
        return std::move(status).at(where);
      }
    }
    Status status = finish(reader, "block");
    if (!status.ok()) return std::move(status).at(where);
    if (!has_index || !has_parent) {
      return InvalidProgram("malformed program: block without its {} field",
                            has_index ? "parent_idx" : "idx")
          .at(where);
    }
    if (!unknown.empty())
      block.set_unknown(std::make_shared<const std::string>(std::move(unknown)));
    return Ok();
  }

  Status read_block_field(Block& block, const Field& field, bool& has_index, bool& has_parent,
                          std::string& unknown) {
    const auto number = static_cast<int32_t>(field.varint);
    switch (field.number) {
      case wire::block_field::kIdx:
        MILLRACE_RETURN_IF_ERROR(expect(field, Type::kVarint, "block idx"));
        block.set_stated_index(number);
        has_index = true;
        return Ok();
      case wire::block_field::kParentIdx:
        MILLRACE_RETURN_IF_ERROR(expect(field, Type::kVarint, "block parent_idx"));
        block.set_parent(number);
        has_parent = true;
        return Ok();
      case wire::block_field::kVars:
        return read_var(block, field);
      case wire::block_field::kOps:
        return read_op(block, field);
      case wire::block_field::kForwardBlockIdx:
        MILLRACE_RETURN_IF_ERROR(expect(field, Type::kVarint, "block forward_block_idx"));
        block.set_forward_block(number);
        return Ok();
      default:
        unknown.append(field.encoded.data(), field.encoded.size());
        return Ok();
    }
  }

  Status read_var(Block& block, const Field& field) {
    MILLRACE_RETURN_IF_ERROR(expect(field, Type::kBytes, "var"));
    namespace f = wire::var_field;
    std::optional<llvm::StringRef> name;
    bool has_type = false;
    VarSpec spec;
    std::string extra;
    std::string type_extra;
    Reader reader(field.bytes);
    Field member;
    Location where;
    where.block = block.index();
    while (reader.next(member)) {
      const bool flag = member.varint != 0;
      if (member.number == f::kName || member.number == f::kType) {
        if (member.type != Type::kBytes) {
          return wrong_type(member, member.number == f::kName ? "var name" : "var type")
              .with_hint(
                  "programs from before the first release (2017) describe vars differently and are "
                  "not readable")
              .at(where);
        }
        if (member.number == f::kName) {
          name = member.bytes;
          where.var = member.bytes.str();
        } else {
          has_type = true;
          Status status = read_var_type(member.bytes, spec, type_extra);
          if (!status.ok()) return std::move(status).at(where);
        }
        continue;
      }
      const bool known = member.number >= f::kPersistable && member.number <= f::kStopGradient;
      if (known && member.type != Type::kVarint) return wrong_type(member, "var flag").at(where);
      switch (member.number) {
        case f::kPersistable:
          spec.persistable = flag;
          break;
        case f::kNeedCheckFeed:
          spec.need_check_feed = flag;
          break;
        case f::kIsParameter:
          spec.is_parameter = flag;
          break;
        case f::kStopGradient:
          spec.stop_gradient = flag;
          break;
        default:
          extra.append(member.encoded.data(), member.encoded.size());
      }
    }
    spec.extra = shared_or_null(std::move(extra));
    spec.type_extra = shared_or_null(std::move(type_extra));
    Status status = finish(reader, "var");
    if (!status.ok()) return std::move(status).at(where);
    if (!name || !has_type) {
      return InvalidProgram("malformed program: var {} at byte {} lacks its required {}",
                            block.var_count(), offset(field.encoded.data()), name ? "type" : "name")
          .at(where);
    }
    Var& var = block.add_declaration(*name, std::move(spec));
    Block::set_wire(var, field.bytes);
    return Ok();
  }

  Status read_var_type(llvm::StringRef bytes, VarSpec& spec, std::string& extra) {
    bool has_kind = false;
    Reader reader(bytes);
    Field member;
    while (reader.next(member)) {
      if (member.number == 1) {
        MILLRACE_RETURN_IF_ERROR(expect(member, Type::kVarint, "var kind"));
        spec.kind = static_cast<VarKind>(static_cast<int32_t>(member.varint));
        has_kind = true;
        continue;
      }
      const bool is_tensor =
          (member.number >= 2 && member.number <= 4) || (member.number >= 8 && member.number <= 12);
      if (!is_tensor || spec.has_tensor()) {
        extra.append(member.encoded.data(), member.encoded.size());
        continue;
      }
      MILLRACE_RETURN_IF_ERROR(expect(member, Type::kBytes, "tensor description"));
      spec.form = static_cast<TensorForm>(member.number);
      const bool with_lod =
          spec.form == TensorForm::kLodTensor || spec.form == TensorForm::kTensorArray;
      MILLRACE_RETURN_IF_ERROR(with_lod ? read_lod_tensor(member.bytes, spec)
                                        : read_tensor(member.bytes, spec));
    }
    MILLRACE_RETURN_IF_ERROR(finish(reader, "var type"));
    if (!has_kind) return InvalidProgram("malformed program: var type lacks its required kind");
    return Ok();
  }

  Status read_lod_tensor(llvm::StringRef bytes, VarSpec& spec) {
    bool has_tensor = false;
    Reader reader(bytes);
    Field member;
    while (reader.next(member)) {
      if (member.number == 1) {
        MILLRACE_RETURN_IF_ERROR(expect(member, Type::kBytes, "tensor"));
        MILLRACE_RETURN_IF_ERROR(read_tensor(member.bytes, spec));
        has_tensor = true;
      } else if (member.number == 2) {
        MILLRACE_RETURN_IF_ERROR(expect(member, Type::kVarint, "lod_level"));
        spec.lod_level = static_cast<int32_t>(member.varint);
      }
    }
    MILLRACE_RETURN_IF_ERROR(finish(reader, "tensor with LoD"));
    if (!has_tensor)
      return InvalidProgram("malformed program: tensor with LoD lacks its required tensor");
    return Ok();
  }

  Status read_tensor(llvm::StringRef bytes, VarSpec& spec) {
    bool has_dtype = false;
    Reader reader(bytes);
    Field member;
    while (reader.next(member)) {
      if (member.number == 1) {
        MILLRACE_RETURN_IF_ERROR(expect(member, Type::kVarint, "data_type"));
        spec.dtype = static_cast<DType>(static_cast<int32_t>(member.varint));
        has_dtype = true;
      } else if (member.number == 2) {
        MILLRACE_RETURN_IF_ERROR(read_dims(member, spec.dims));
      }
    }
    MILLRACE_RETURN_IF_ERROR(finish(reader, "tensor"));
    if (!has_dtype) return InvalidProgram("malformed program: tensor lacks its required data_type");
    return Ok();
  }

  Status read_dims(const Field& field, Dims& dims) const {
    if (field.type == Type::kVarint) {
      dims.push_back(static_cast<int64_t>(field.varint));
      return Ok();
    }
    MILLRACE_RETURN_IF_ERROR(expect(field, Type::kBytes, "dims"));
    return wire_each_varint(field.bytes, "dims",
                            [&](uint64_t v) { dims.push_back(static_cast<int64_t>(v)); });
  }

  Status read_op(Block& block, const Field& field) {
    MILLRACE_RETURN_IF_ERROR(expect(field, Type::kBytes, "op"));
    namespace f = wire::op_field;
    Location where;
    where.block = block.index();
    where.op = static_cast<int64_t>(block.op_count());
    auto fail = [&](Status status) { return std::move(status).at(where); };

    // On the wire the type comes after the slots, but it is needed to create the op.
    Reader reader(field.bytes);
    Field member;
    std::optional<llvm::StringRef> type;
    while (reader.next(member)) {
      if (member.number == f::kType && member.type == Type::kBytes) type = member.bytes;
    }
    if (Status status = finish(reader, "op"); !status.ok()) return fail(std::move(status));
    if (!type) return fail(InvalidProgram("malformed program: op lacks its required type"));
    where.op_type = type->str();

    Op& op = block.append_op(*type);
    std::string unknown;
    reader = Reader(field.bytes);
    while (reader.next(member)) {
      switch (member.number) {
        case f::kInputs:
        case f::kOutputs:
          if (Status status = read_slot(op, member); !status.ok()) return fail(std::move(status));
          break;
        case f::kType:
          if (member.type != Type::kBytes) return fail(wrong_type(member, "op type"));
          break;
        case f::kAttrs: {
          if (member.type != Type::kBytes) return fail(wrong_type(member, "attr"));
          StatusOr<Attr> attr = attrs_.read(member.bytes);
          if (!attr.ok()) return fail(std::move(attr).status());
          op.add_attr(std::move(attr).value());
          break;
        }
        case f::kIsTarget:
          if (member.type != Type::kVarint) return fail(wrong_type(member, "is_target"));
          op.set_is_target(member.varint != 0);
          break;
        default:
          unknown.append(member.encoded.data(), member.encoded.size());
      }
    }
    if (!unknown.empty()) op.set_unknown(std::make_shared<const std::string>(std::move(unknown)));
    Block::set_wire(op, field.bytes);
    return Ok();
  }

  Status read_slot(Op& op, const Field& field) {
    MILLRACE_RETURN_IF_ERROR(expect(field, Type::kBytes, "slot"));
    std::optional<llvm::StringRef> name;
    llvm::SmallVector<llvm::StringRef, 8> arguments;
    Reader reader(field.bytes);
    Field member;
    while (reader.next(member)) {
      if (member.number != wire::slot_field::kParameter &&
          member.number != wire::slot_field::kArguments)
        continue;
      MILLRACE_RETURN_IF_ERROR(expect(member, Type::kBytes, "slot member"));
      if (member.number == wire::slot_field::kParameter) {
        name = member.bytes;
      } else {
        arguments.push_back(member.bytes);
      }
    }
    MILLRACE_RETURN_IF_ERROR(finish(reader, "slot"));
    if (!name) return InvalidProgram("malformed program: slot lacks its required name");
    op.add_slot(field.number == wire::op_field::kOutputs, *name, arguments);
    return Ok();
  }

  const char* begin_;
  Program& program_;
  AttrReader attrs_;
  bool has_op_versions_ = false;
  std::vector<OpVersion> op_versions_;  // the file may contain several op_version_map fields
};

}  // namespace

StatusOr<std::unique_ptr<Program>> import_program(std::shared_ptr<const std::string> bytes,
                                                  const std::string& file,
                                                  const ImportOptions& options) {
  if (static_cast<uint64_t>(bytes->size()) > static_cast<uint64_t>(options.max_bytes)) {
    return Status(StatusCode::kResource,
                  fmt::format("program of {} bytes is above the limit of {} bytes", bytes->size(),
                              options.max_bytes))
        .in_file(file);
  }
  auto program = std::make_unique<Program>();
  Importer importer(*bytes, *program);
  Status status = importer.run(*bytes);
  if (!status.ok()) {
    Location where = status.location();
    where.file = file;
    return std::move(status).at(std::move(where));
  }
  program->set_source(std::move(bytes));
  return program;
}

}  // namespace millrace
