#include "tests/simulation/run.h"

#include <algorithm>
#include <memory>
#include <set>

#include <fmt/format.h>

#include "jobs/ps/job_folder.h"
#include "jobs/ps/server_job.h"
#include "jobs/ps/trainer_job.h"
#include "tests/simulation/checker.h"
#include "tests/simulation/etcd.h"
#include "tests/simulation/folders.h"
#include "tests/simulation/network.h"
#include "tests/simulation/programs.h"
#include "tests/simulation/scheduler.h"

namespace millrace::simulation {
namespace {

using jobs::Server;
using jobs::Trainer;
using std::chrono::milliseconds;

constexpr Time kTimeLimit = 1000 * kSecond;
constexpr int64_t kKillAttempts = 10'000;

milliseconds ms(Time time) {
  return milliseconds(time / kMillisecond);
}

// All processes of a job, and the faults that happen to them.
class JobRun {
 public:
  JobRun(const Case& job, std::string folder, Scheduler& scheduler)
      : job_(job),
        folder_(std::move(folder)),
        files_{folder_ + "/job", job.trainers, job.servers},
        scheduler_(scheduler),
        network_(scheduler, job.seed * 5 + 3, job.noise),
        random_(job.seed * 7 + 5),
        checker_(job_),
        roles_(static_cast<size_t>(job.servers + job.trainers)) {
    if (!job.etcd) return;
    etcd_ = std::make_unique<Etcd>(scheduler, network_, job.seed * 17 + 11, job.etcd_losses);
    network_.watch([this](const Network::Served& call) { check_served(call); });
  }

  // The first simulated thread.
  void drive();
  void report(Outcome& outcome) const;
  Checker& checker() { return checker_; }

 private:
  enum class State : uint8_t { kNotStarted, kRunning, kEnded, kKilled };
  struct Role {
    Scheduler::ProcessId process = 0;
    State state = State::kNotStarted;
    Status result;
    int starts = 0;
    bool joined = false;    ///< a trainer that has connected to all servers
    bool finishes = false;  ///< a trainer that has done all steps
    std::string root;       ///< of a server: where its snapshots are
    std::string address;    ///< of a server: where it listens if the job has etcd
    bool torn = false;      ///< what a server had written was damaged
  };
  struct Event {
    Time at;
    std::function<void()> happen;
    bool starts_a_process;
  };

  [[nodiscard]] bool is_server(int role) const { return role < job_.servers; }
  Role& at(int role) { return roles_[static_cast<size_t>(role)]; }
  void plan(Time time, std::function<void()> happen, bool starts_a_process = false);
  void plan_fault(const Fault& fault);
  void kill(const Fault& fault);
  void start(int role);
  void end(int role, Scheduler::ProcessId process, Status result);
  /// Pauses a process, or cuts it off from etcd; another one may take its place.
  void silence(Role& role, const Fault& fault);
  void replace(const Fault& fault, Scheduler::ProcessId process);
  void cut_off_etcd(const Role& role, const Fault& fault);
  void check_served(const Network::Served& call);
  void judge(const Role& role, const std::string& name);
  StatusOr<std::shared_ptr<ps::Transport>> transport(const Role& own);
  [[nodiscard]] bool any_runs() const;
  [[nodiscard]] bool any_trainer_left() const;
  Status serve(int role, const Role& own);
  Status train(int role, const Role& own);
  Status steps_of(Trainer& trainer, int number, Scheduler::ProcessId process, int64_t first);
  Status timed(Scheduler::ProcessId process, const char* what, const std::function<Status()>& call);
  [[nodiscard]] ServerFolder disk_of(int role) { return {at(role).root, role}; }
  [[nodiscard]] ServerFolder old_disk_of(int role) const { return {folder_ + "/old", role}; }
  LogSink log_of(std::string who);

  const Case& job_;
  std::string folder_;
  jobs::JobFolder files_;
  Scheduler& scheduler_;
  Network network_;
  Random random_;
  Checker checker_;
  std::unique_ptr<Etcd> etcd_;  ///< null: the job has none
  std::vector<Role> roles_;
  std::vector<Role> former_;   ///< servers in whose place others were started while they lived
  std::vector<Event> events_;  ///< to come
  std::set<int> may_lose_;     ///< trainers
  bool gentle_ = true;         ///< all faults so far must be survived
};

LogSink JobRun::log_of(std::string who) {
  return [this, who = std::move(who)](LogLevel, std::string_view line) {
    scheduler_.remark(fmt::format("  {}: {}", who, line));
  };
}

void JobRun::plan(Time time, std::function<void()> happen, bool starts_a_process) {
  events_.push_back({time, std::move(happen), starts_a_process});
  std::ranges::stable_sort(events_, {}, &Event::at);
}

void JobRun::plan_fault(const Fault& fault) {
  const auto happen = [this, &fault](const std::function<void(Role&)>& action) {
    if (fault.steps > 0) scheduler_.wait_steps(fault.steps);
    Role& role = at(fault.role);
    if (role.state != State::kRunning) return;
    gentle_ = gentle_ && must_be_survived(job_, fault);
    scheduler_.note("fault: " + describe(job_, fault));
    action(role);
  };
  if (fault.disk < 100) {
    plan(fault.at * fault.disk / 100,
         [this, &fault] { old_disk_of(fault.role).copy_from(disk_of(fault.role), job_.etcd); });
  }
  switch (fault.kind) {
    case Fault::Kind::kKill:
      plan(fault.at, [=, this, &fault] { happen([&](Role&) { kill(fault); }); });
      break;
    case Fault::Kind::kPause:
    case Fault::Kind::kSuspend:
    case Fault::Kind::kNoEtcd:
      plan(fault.at, [=, this, &fault] { happen([&](Role& role) { silence(role, fault); }); });
      break;
    case Fault::Kind::kDate:
      plan(fault.at, [=, this, &fault] {
        happen([&](Role& role) { scheduler_.shift_date(role.process, fault.length); });
      });
      break;
    case Fault::Kind::kEtcdDown:
      plan(fault.at, [=, this, &fault] {
        happen([&](Role&) {
          etcd_->set_down(true);
          plan(scheduler_.now() + fault.length, [this] { etcd_->set_down(false); });
        });
      });
      break;
    case Fault::Kind::kCut:
      plan(fault.at, [=, this] { happen([&](Role& role) { network_.cut(role.process); }); });
      break;
    case Fault::Kind::kBlock:
      plan(fault.at, [=, this, &fault] {
        happen([&](Role& role) {
          network_.block(role.process, at(fault.other).process, scheduler_.now() + fault.length);
        });
      });
      break;
  }
}

void JobRun::cut_off_etcd(const Role& role, const Fault& fault) {
  const Time until = scheduler_.now() + fault.length;
  if (fault.way != Fault::Way::kFromEtcd) network_.block(role.process, etcd_->process(), until);
  if (fault.way != Fault::Way::kToEtcd) network_.block(etcd_->process(), role.process, until);
}

void JobRun::silence(Role& role, const Fault& fault) {
  const Scheduler::ProcessId process = role.process;
  if (fault.kind == Fault::Kind::kNoEtcd) {
    cut_off_etcd(role, fault);
  } else {
    scheduler_.pause(process, true);
    plan(scheduler_.now() + fault.length, [this, &fault, process] {
      scheduler_.pause(process, false, fault.kind == Fault::Kind::kSuspend);
    });
  }
  if (fault.replaced_after < 0) return;
  for (int t = 0; t < job_.trainers; ++t) may_lose_.insert(t);
  plan(
      scheduler_.now() + fault.replaced_after, [this, &fault, process] { replace(fault, process); },
      true);
}

void JobRun::replace(const Fault& fault, Scheduler::ProcessId process) {
  Role& role = at(fault.role);
  if (role.process != process || role.state != State::kRunning) return;
  former_.push_back(role);
  if (fault.own_folder) {
    const ServerFolder before = fault.disk < 100 ? old_disk_of(fault.role) : disk_of(fault.role);
    role.root = fmt::format("{}/snapshots-{}", folder_, former_.size());
    disk_of(fault.role).copy_from(before, true);
  } else {
    scheduler_.drop_file_locks(process);
  }
  start(fault.role);
}

// After another process took a server's name in etcd, the server must carry out nothing. A call
// that it has just carried out may be answered a moment later, or after a pause.
void JobRun::check_served(const Network::Served& call) {
  constexpr Time kMoment = 10 * kMillisecond;
  const Time taken = etcd_->taken_from(call.server);
  const bool ran = scheduler_.paused_for(call.server) == call.paused_before;
  if (!call.result.ok() || taken == kNever) return;
  if (call.begun <= taken && (!ran || scheduler_.now() <= taken + kMoment)) return;
  checker_.add(fmt::format(
      "split brain: {} carried out {} of trainer {}, {} ms after another process took its name",
      scheduler_.name_of(call.server), method_name(call.request.method),
      call.request.caller.trainer, (scheduler_.now() - taken) / kMillisecond));
}

void JobRun::kill(const Fault& fault) {
  Role& role = at(fault.role);
  for (int64_t i = 0; !scheduler_.kill(role.process); ++i) {
    if (i == kKillAttempts) return;
    scheduler_.wait_steps(1);
    if (role.state != State::kRunning) return;
  }
  network_.end(role.process);
  role.state = State::kKilled;
  for (int t = 0; t < job_.trainers; ++t)
    if (is_server(fault.role) || fault.role == job_.servers + t) may_lose_.insert(t);
  // what a server forgets of trainers that have left is not restored
  if (is_server(fault.role) && std::ranges::any_of(roles_, &Role::finishes)) gentle_ = false;
  if (fault.restart < 0) return;
  plan(
      scheduler_.now() + fault.restart,
      [this, &fault] {
        const ServerFolder old = old_disk_of(fault.role);
        if (fault.disk < 100 && old.exists()) disk_of(fault.role).copy_from(old, job_.etcd);
        if (fault.torn) disk_of(fault.role).tear(random_);
        at(fault.role).torn |= fault.torn;
        start(fault.role);
      },
      true);
}

void JobRun::start(int number) {
  Role& role = at(number);
  role.process = scheduler_.add_process(
      role_name(job_, number) + (role.starts > 0 ? fmt::format(" #{}", role.starts + 1) : ""));
  role.state = State::kRunning;
  ++role.starts;
  role.joined = false;
  if (is_server(number)) role.address = endpoint_of(number + 100 * (role.starts - 1));
  scheduler_.note("start: " + scheduler_.name_of(role.process));
  scheduler_.spawn(role.process, [this, number, own = role] {
    const Scheduler::ProcessId process = own.process;
    Status result = is_server(number) ? serve(number, own) : train(number, own);
    scheduler_.note(
        fmt::format("end: {}: {}", scheduler_.name_of(process),
                    result.ok() ? std::string_view("ok") : status_code_name(result.code())));
    if (!result.ok()) scheduler_.remark("  " + result.to_string());
    network_.end(process);
    end(number, process, std::move(result));
    scheduler_.wake_all(this);
    (void)scheduler_.kill(process);
  });
}

void JobRun::end(int number, Scheduler::ProcessId process, Status result) {
  const auto former = std::ranges::find(former_, process, &Role::process);
  Role& role = former == former_.end() ? at(number) : *former;
  role.result = std::move(result);
  role.state = State::kEnded;
}

bool JobRun::any_runs() const {
  const auto runs = [](const Role& role) { return role.state == State::kRunning; };
  return std::ranges::any_of(roles_, runs) || std::ranges::any_of(former_, runs);
}

bool JobRun::any_trainer_left() const {
  return std::any_of(roles_.begin() + job_.servers, roles_.end(),
                     [](const Role& role) { return role.state != State::kEnded; });
}

void JobRun::drive() {
  for (Role& role : roles_) role.root = folder_ + "/snapshots";
  for (int role = 0; role < static_cast<int>(roles_.size()); ++role)
    plan(
        random_.between(0, 50 * kMillisecond), [this, role] { start(role); }, true);
  for (const Fault& fault : job_.faults) plan_fault(fault);
  while (any_runs() || !events_.empty()) {
    const bool starts = std::ranges::any_of(events_, &Event::starts_a_process);
    if (!any_runs() && (!starts || !any_trainer_left())) break;
    if (!events_.empty() && events_.front().at <= scheduler_.now()) {
      const Event event = std::move(events_.front());
      events_.erase(events_.begin());
      event.happen();
      continue;
    }
    scheduler_.block(this, events_.empty() ? kNever : events_.front().at);
  }
  for (int role = 0; role < static_cast<int>(roles_.size()); ++role) {
    if (at(role).starts == 0) checker_.add(role_name(job_, role) + " was never started");
    if (at(role).state != State::kEnded || at(role).result.ok()) continue;
    if (!is_server(role)) may_lose_.insert(role - job_.servers);
    judge(at(role), role_name(job_, role));
  }
  for (const Role& role : former_)
    if (!role.result.ok()) judge(role, scheduler_.name_of(role.process));
  std::vector<int> starts;
  for (int t = 0; t < job_.trainers; ++t) starts.push_back(at(job_.servers + t).starts);
  checker_.judge_ends(may_lose_, starts);
}

void JobRun::judge(const Role& role, const std::string& name) {
  const Status& result = role.result;
  if (role.torn && result.code() == StatusCode::kInvalidData) return;
  const bool out_of_turn = result.message().find("barrier first") != std::string::npos;
  if (result.code() != StatusCode::kDistributed || out_of_turn)
    checker_.add(fmt::format("{} ended with {}", name, result.to_string()));
  else if (gentle_ && (role.starts == 1 || role.joined))
    checker_.add(fmt::format("{} did not survive: {}", name, result.to_string()));
}

StatusOr<std::shared_ptr<ps::Transport>> JobRun::transport(const Role& own) {
  if (etcd_ == nullptr) return network_.transport(own.process, job_.reconnect);
  Etcd::Place place;
  place.listen_at = own.address;
  place.lease = job_.lease;
  place.patience = job_.reconnect;
  place.is_fenced = job_.is_fenced;
  place.log = [log = log_of(scheduler_.name_of(own.process))](const std::string& line) {
    log(LogLevel::kInfo, line);
  };
  return etcd_->transport(own.process, place);
}

Status JobRun::serve(int role, const Role& own) {
  Server::Settings settings;
  ps::ServerOptions& service = settings.service;
  service.start_timeout = std::chrono::seconds(60);
  service.silence_timeout = ms(job_.silence);
  service.elastic = job_.elastic;
  service.report_interval = milliseconds(0);
  if (job_.snapshot_every > 0) {
    service.snapshot_root = own.root;
    service.snapshot_every = job_.mode == Mode::kSync ? job_.snapshot_every : 0;
    service.snapshot_interval =
        milliseconds(job_.mode == Mode::kSync ? 0 : 100 * job_.snapshot_every);
    service.snapshot_durable = job_.durable;
  }
  service.log = [log = log_of(role_name(job_, role))](const std::string& line) {
    log(LogLevel::kInfo, line);
  };
  MILLRACE_ASSIGN_OR_RETURN(const auto transport, this->transport(own));
  MILLRACE_ASSIGN_OR_RETURN(
      const auto server,
      jobs::ServerJob::open(
          {files_.program("pserver", role), files_.startup("pserver", role), files_.slices(), ""},
          std::move(settings), transport));
  return server->serve();
}

// Each call of a trainer makes a few calls to servers, each of which has a deadline.
Status JobRun::timed(Scheduler::ProcessId process, const char* what,
                     const std::function<Status()>& call) {
  const Time begin = scheduler_.now() - scheduler_.paused_for(process);
  Status status = call();
  const Time length = scheduler_.now() - scheduler_.paused_for(process) - begin;
  if (length > 5 * job_.deadline)
    checker_.add(
        fmt::format("{} waited {} s in {}", scheduler_.name_of(process), length / kSecond, what));
  return status;
}

Status JobRun::steps_of(Trainer& trainer, int number, Scheduler::ProcessId process, int64_t first) {
  std::vector<std::string> fetches;
  for (const Slice& slice : kSlices)
    if (slice.begin == 0) fetches.emplace_back(slice.param);
  executor::NamedValues values;
  for (int64_t step = first; step < job_.steps; ++step) {
    scheduler_.sleep_until(scheduler_.now() + random_.between(0, job_.longest_step));
    MILLRACE_ASSIGN_OR_RETURN(const executor::NamedValues feeds, feeds_of(job_, number, step));
    MILLRACE_RETURN_IF_ERROR(
        timed(process, "a step", [&] { return trainer.step(step, feeds, fetches, values); }));
    scheduler_.note(fmt::format("trainer {} has done step {}", number, step));
    if (job_.mode == Mode::kSync) checker_.saw_step(number, step, values);
  }
  return Ok();
}

// What jobs::train() does, with feeds of its own.
Status JobRun::train(int role, const Role& own) {
  const Scheduler::ProcessId process = own.process;
  const int number = role - job_.servers;
  Trainer::Settings settings;
  settings.trainer = number;
  settings.client.deadline = ms(job_.deadline);
  settings.client.reconnect_timeout = ms(job_.reconnect);
  settings.client.heartbeat = ms(job_.silence / 4);
  settings.log = log_of(role_name(job_, role));
  std::unique_ptr<Trainer> trainer;
  MILLRACE_RETURN_IF_ERROR(timed(process, "opening", [&] {
    MILLRACE_ASSIGN_OR_RETURN(const auto transport, this->transport(own));
    MILLRACE_ASSIGN_OR_RETURN(
        trainer, jobs::TrainerJob::open({files_.program("trainer", number),
                                         files_.startup("trainer", number), files_.slices(), ""},
                                        settings, transport));
    return Ok();
  }));
  at(role).joined = true;
  for (int64_t first = trainer->first_step();;) {
    Status status = steps_of(*trainer, number, process, first);
    executor::NamedValues gathered;
    if (status.ok()) {
      at(role).finishes = true;
      Trainer::Ending ending;
      ending.gather = &gathered;
      status = timed(process, "the end", [&] { return trainer->finish(ending); });
    }
    if (status.ok()) {
      checker_.saw_end(number, gathered);
      return status;
    }
    if (!trainer->must_go_back()) return status;
    scheduler_.remark("  " + status.message());
    do {
      status = timed(process, "going back", [&] {
        MILLRACE_ASSIGN_OR_RETURN(first, trainer->go_back());
        return Ok();
      });
    } while (!status.ok() && trainer->must_go_back());
    MILLRACE_RETURN_IF_ERROR(std::move(status));
    at(role).finishes = false;
    checker_.went_back(first);
    scheduler_.note(fmt::format("trainer {} goes back to step {}", number, first));
  }
}

void JobRun::report(Outcome& outcome) const {
  outcome.findings.assign(checker_.findings().begin(), checker_.findings().end());
  outcome.hash = scheduler_.hash();
  outcome.steps = scheduler_.steps();
  outcome.switches = scheduler_.switches();
  outcome.time = scheduler_.now();
  static constexpr const char* kStates[] = {"not started", "running", "", "killed"};
  for (size_t i = 0; i < roles_.size(); ++i) {
    const Role& role = roles_[i];
    std::string state = kStates[static_cast<size_t>(role.state)];
    if (role.state == State::kEnded)
      state = role.result.ok() ? std::string_view("ok") : status_code_name(role.result.code());
    outcome.results +=
        fmt::format("{}{}: {}", i == 0 ? "" : ", ", role_name(job_, static_cast<int>(i)), state);
  }
  for (const Role& role : former_) {
    if (role.state != State::kEnded)
      outcome.findings.push_back(scheduler_.name_of(role.process) + ", replaced, has not ended");
  }
}

}  // namespace

Outcome run_case(const Case& job, const std::string& folder, std::vector<std::string>* notes,
                 const std::function<void(const Outcome&)>& stuck) {
  Outcome outcome;
  if (Status status = write_programs(job, folder + "/job"); !status.ok()) {
    outcome.findings.push_back("the job cannot be made: " + status.to_string());
    return outcome;
  }
  JobRun* run = nullptr;
  Scheduler scheduler(job.seed, kTimeLimit, [&](const std::string& reason) {
    run->report(outcome);
    outcome.findings.push_back(reason);
    stuck(outcome);
  });
  scheduler.keep_notes(notes);
  // neither is ever destroyed: threads of killed processes refer to them
  run = new JobRun(job, folder, scheduler);  // NOLINT
  scheduler.run([&] { run->drive(); });
  run->report(outcome);
  return outcome;
}

}  // namespace millrace::simulation
