#include <algorithm>
#include <optional>

#include <fmt/format.h>
#include <llvm/ADT/StringRef.h>

#include "fleet/roles/role_maker.h"
#include "framework/base/errors.h"

namespace millrace::fleet {
namespace {

constexpr int kMostProcesses = 1 << 20;

// Reads required variables.
class Needed {
 public:
  explicit Needed(const EnvironmentReader& read) : read_(read) {}

  StatusOr<std::string> text(const char* name) const {
    std::optional<std::string> value = read_(name);
    if (value && !value->empty()) return *std::move(value);
    return InvalidArgument("environment: {} is not set", name);
  }

  StatusOr<int> number(const char* name, int least) const {
    MILLRACE_ASSIGN_OR_RETURN(const std::string value, text(name));
    int number = 0;
    if (llvm::StringRef(value).getAsInteger(10, number) || number < least ||
        number > kMostProcesses)
      return InvalidArgument("environment: expected a number from {} in {}, found '{}'", least,
                             name, value);
    return number;
  }

  StatusOr<std::string> own_endpoint() const {
    MILLRACE_ASSIGN_OR_RETURN(const std::string port, text("PADDLE_PORT"));
    MILLRACE_ASSIGN_OR_RETURN(const std::string host, text("POD_IP"));
    return host + ":" + port;
  }

  [[nodiscard]] std::string or_empty(const char* name) const { return read_(name).value_or(""); }
  [[nodiscard]] std::vector<std::string> list(const char* name) const {
    return split_list(or_empty(name));
  }

 private:
  const EnvironmentReader& read_;
};

StatusOr<int> place_in(const std::vector<std::string>& list, const std::string& own,
                       const char* name) {
  const auto found = std::find(list.begin(), list.end(), own);
  if (found != list.end()) return static_cast<int>(found - list.begin());
  return InvalidArgument("environment: POD_IP and PADDLE_PORT say '{}', which is not in {} '{}'",
                         own, name, join_list(list));
}

StatusOr<Role> training_role(const Needed& needed, bool old_names) {
  MILLRACE_ASSIGN_OR_RETURN(const std::string name, needed.text("TRAINING_ROLE"));
  if (name == "TRAINER") return Role::kWorker;
  if (name == "PSERVER") return Role::kServer;
  if (name == "HETER_TRAINER" && !old_names) return Role::kHeterWorker;
  if (name == "COORDINATOR" && !old_names) return Role::kCoordinator;
  return InvalidArgument(
      "environment: expected TRAINING_ROLE {}, found '{}'",
      old_names ? "TRAINER or PSERVER" : "TRAINER, PSERVER, HETER_TRAINER or COORDINATOR", name);
}

// The numbers in "[2,1]", "2 1", ..., whatever separates them.
std::vector<int> digits_in(llvm::StringRef text) {
  std::vector<int> numbers;
  while (!text.empty()) {
    text = text.drop_until([](char c) { return c >= '0' && c <= '9'; });
    unsigned number = 0;
    if (text.consumeInteger(10, number)) break;
    numbers.push_back(static_cast<int>(number));
  }
  return numbers;
}

Status read_stage(const Needed& needed, HeterStage& stage) {
  MILLRACE_ASSIGN_OR_RETURN(stage.stage_id, needed.number("STAGE_ID", 0));
  MILLRACE_ASSIGN_OR_RETURN(stage.stage_num, needed.number("STAGE_NUM", 1));
  MILLRACE_ASSIGN_OR_RETURN(const std::string workers, needed.text("PADDLE_STAGE_TRAINERS_NUM"));
  stage.stage_workers = digits_in(workers);
  return Ok();
}

Status read_device(const Needed& needed, HeterStage& stage) {
  MILLRACE_ASSIGN_OR_RETURN(const std::string type, needed.text("HETER_DEVICE_TYPE"));
  if (type != "cpu" && type != "gpu" && type != "xpu")
    return InvalidArgument("environment: expected HETER_DEVICE_TYPE cpu, gpu or xpu, found '{}'",
                           type);
  stage.device = type;
  if (type == "cpu") return Ok();
  const std::string number =
      needed.or_empty(type == "gpu" ? "FLAGS_selected_gpus" : "FLAGS_selected_xpus");
  stage.device = fmt::format("{}:{}", type, number.empty() ? "0" : number);
  return Ok();
}

// Reads the neighbours in the chain of stages: the first stage has workers, the last one heter
// workers.
Status read_heter(const Needed& needed, RoleMaker& made) {
  HeterStage& stage = made.heter;
  stage.all = needed.list("PADDLE_ALL_HETER_TRAINER_IP_PORT_LIST");
  if (stage.all.empty()) return Ok();
  stage.next = needed.list("PADDLE_NEXT_HETER_TRAINER_IP_PORT_LIST");
  stage.previous = needed.list("PADDLE_PREVIOUS_HETER_TRAINER_IP_PORT_LIST");
  if (stage.previous.empty() && made.is_heter_worker())
    return InvalidArgument(
        "environment: a HETER_TRAINER needs PADDLE_PREVIOUS_HETER_TRAINER_IP_PORT_LIST");
  if (stage.next.empty() && made.is_worker())
    return InvalidArgument(
        "environment: a TRAINER of a job with heter workers needs "
        "PADDLE_NEXT_HETER_TRAINER_IP_PORT_LIST");
  return Ok();
}

Status read_worker(const Needed& needed, RoleMaker& made) {
  MILLRACE_ASSIGN_OR_RETURN(made.id, needed.number("PADDLE_TRAINER_ID", 0));
  if (made.id >= made.worker_num)
    return InvalidArgument("environment: PADDLE_TRAINER_ID is {}, but PADDLE_TRAINERS_NUM is {}",
                           made.id, made.worker_num);
  if (made.has_heter_workers()) MILLRACE_RETURN_IF_ERROR(read_stage(needed, made.heter));
  MILLRACE_ASSIGN_OR_RETURN(made.own_endpoint, needed.own_endpoint());
  return Ok();
}

Status read_server(const Needed& needed, RoleMaker& made) {
  MILLRACE_ASSIGN_OR_RETURN(made.own_endpoint, needed.own_endpoint());
  MILLRACE_ASSIGN_OR_RETURN(
      made.id, place_in(made.server_endpoints, made.own_endpoint, "PADDLE_PSERVERS_IP_PORT_LIST"));
  return Ok();
}

Status read_heter_worker(const Needed& needed, RoleMaker& made) {
  MILLRACE_RETURN_IF_ERROR(read_stage(needed, made.heter));
  MILLRACE_RETURN_IF_ERROR(read_device(needed, made.heter));
  MILLRACE_ASSIGN_OR_RETURN(made.own_endpoint, needed.own_endpoint());
  MILLRACE_ASSIGN_OR_RETURN(made.id, place_in(made.heter.all, made.own_endpoint,
                                              "PADDLE_ALL_HETER_TRAINER_IP_PORT_LIST"));
  return Ok();
}

Status read_own(const Needed& needed, RoleMaker& made) {
  if (made.is_worker()) return read_worker(needed, made);
  if (made.is_server()) return read_server(needed, made);
  if (made.is_heter_worker()) return read_heter_worker(needed, made);
  made.id = 0;  // there is only one coordinator
  return Ok();
}

StatusOr<int> choice(const Needed& needed, const char* name, int most) {
  if (needed.or_empty(name).empty()) return 0;
  MILLRACE_ASSIGN_OR_RETURN(const int value, needed.number(name, 0));
  if (value <= most) return value;
  return InvalidArgument("environment: expected 0 to {} in {}, found {}", most, name, value);
}

Status read_meeting(const Needed& needed, MeetingOptions& meeting) {
  MILLRACE_ASSIGN_OR_RETURN(const int who, choice(needed, "PADDLE_WITH_GLOO", 2));
  meeting.who = static_cast<MeetingOptions::Who>(who);
  if (who == 0) return Ok();
  MILLRACE_ASSIGN_OR_RETURN(const int store, choice(needed, "PADDLE_GLOO_RENDEZVOUS", 3));
  meeting.store = static_cast<MeetingOptions::Store>(store);
  meeting.fs_name = needed.or_empty("PADDLE_GLOO_FS_NAME");
  meeting.fs_ugi = needed.or_empty("PADDLE_GLOO_FS_UGI");
  meeting.path = needed.or_empty("PADDLE_GLOO_FS_PATH");
  meeting.http_endpoint = needed.or_empty("PADDLE_GLOO_HTTP_ENDPOINT");
  meeting.prefix = needed.or_empty("SYS_JOB_ID");
  return Ok();
}

Status read_general_id(const Needed& needed, RoleMaker& made) {
  if (made.is_worker()) {
    MILLRACE_ASSIGN_OR_RETURN(made.id, needed.number("PADDLE_TRAINER_ID", 0));
    if (made.id >= made.worker_num)
      return InvalidArgument(
          "environment: PADDLE_TRAINER_ID is {}, but PADDLE_TRAINER_ENDPOINTS has {} entries",
          made.id, made.worker_num);
    made.own_endpoint = made.worker_endpoints[static_cast<size_t>(made.id)];
    return Ok();
  }
  if (needed.or_empty("PADDLE_PSERVER_ID").empty()) return read_server(needed, made);
  MILLRACE_ASSIGN_OR_RETURN(made.id, needed.number("PADDLE_PSERVER_ID", 0));
  if (made.id >= made.server_num())
    return InvalidArgument(
        "environment: PADDLE_PSERVER_ID is {}, but PADDLE_PSERVERS_IP_PORT_LIST has {} entries",
        made.id, made.server_num());
  made.own_endpoint = made.server_endpoints[static_cast<size_t>(made.id)];
  return Ok();
}

}  // namespace

StatusOr<RoleMaker> role_from_environment(const EnvironmentReader& read) {
  const Needed needed(read);
  RoleMaker made;
  made.server_endpoints = needed.list("PADDLE_PSERVERS_IP_PORT_LIST");
  if (made.server_endpoints.empty()) {
    made.is_distributed = false;
    return made;
  }
  made.worker_endpoints = needed.list("PADDLE_TRAINER_ENDPOINTS");
  made.coordinator_endpoints = needed.list("PADDLE_COORDINATOR_ENDPOINTS");
  MILLRACE_ASSIGN_OR_RETURN(made.worker_num, needed.number("PADDLE_TRAINERS_NUM", 1));
  MILLRACE_ASSIGN_OR_RETURN(made.role, training_role(needed, /*old_names=*/false));
  MILLRACE_RETURN_IF_ERROR(read_heter(needed, made));
  MILLRACE_RETURN_IF_ERROR(read_own(needed, made));
  MILLRACE_RETURN_IF_ERROR(read_meeting(needed, made.meeting));
  return made;
}

StatusOr<RoleMaker> general_role_from_environment(const EnvironmentReader& read) {
  const Needed needed(read);
  RoleMaker made;
  MILLRACE_ASSIGN_OR_RETURN(const std::string servers, needed.text("PADDLE_PSERVERS_IP_PORT_LIST"));
  MILLRACE_ASSIGN_OR_RETURN(const std::string workers, needed.text("PADDLE_TRAINER_ENDPOINTS"));
  made.server_endpoints = split_list(servers);
  made.worker_endpoints = split_list(workers);
  made.worker_num = static_cast<int>(made.worker_endpoints.size());
  MILLRACE_ASSIGN_OR_RETURN(made.role, training_role(needed, /*old_names=*/true));
  MILLRACE_RETURN_IF_ERROR(read_general_id(needed, made));
  const bool meets = needed.or_empty("PADDLE_IS_BARRIER_ALL_ROLE") != "0";
  made.meeting.who = meets ? MeetingOptions::Who::kAll : MeetingOptions::Who::kNone;
  made.meeting.prefix = needed.or_empty("SYS_JOB_ID");
  return made;
}

}  // namespace millrace::fleet
