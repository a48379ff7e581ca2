#include "tests/simulation/run.h"

#include <algorithm>
#include <filesystem>
#include <memory>
#include <set>

#include <fmt/format.h>

#include "jobs/ps/job_folder.h"
#include "jobs/ps/server_job.h"
#include "jobs/ps/trainer_job.h"
#include "tests/simulation/checker.h"
#include "tests/simulation/network.h"
#include "tests/simulation/programs.h"
#include "tests/simulation/scheduler.h"

namespace millrace::simulation {
namespace {

namespace fs = std::filesystem;
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
        roles_(static_cast<size_t>(job.servers + job.trainers)) {}

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
  [[nodiscard]] bool any_runs() const;
  [[nodiscard]] bool any_trainer_left() const;
  Status serve(int role);
  Status train(int role, Scheduler::ProcessId process);
  Status steps_of(Trainer& trainer, int number, Scheduler::ProcessId process, int64_t first);
  Status timed(Scheduler::ProcessId process, const char* what, const std::function<Status()>& call);
  [[nodiscard]] std::string snapshots() const { return folder_ + "/snapshots"; }
  [[nodiscard]] std::string disk_of(int role) const {
    return fmt::format("{}/server-{}", snapshots(), role);
  }
  [[nodiscard]] std::string old_disk_of(int role) const {
    return fmt::format("{}/old/server-{}", folder_, role);
  }
  LogSink log_of(std::string who);

  const Case& job_;
  std::string folder_;
  jobs::JobFolder files_;
  Scheduler& scheduler_;
  Network network_;
  Random random_;
  Checker checker_;
  std::vector<Role> roles_;
  std::vector<Event> events_;  ///< to come
  std::set<int> may_lose_;     ///< trainers
  bool gentle_ = true;         ///< all faults so far must be survived
};

// Faults after which the job must end well on all processes.
bool must_be_survived(const Case& job, const Fault& fault) {
  const bool on_server = fault.role < job.servers;
  switch (fault.kind) {
    case Fault::Kind::kCut:
      return true;
    case Fault::Kind::kPause:
      if (on_server) return fault.length <= job.deadline / 3;
      return job.silence == 0 ? fault.length <= job.deadline / 3 : fault.length <= job.silence / 2;
    case Fault::Kind::kBlock:
      return fault.length <= 2 * kSecond;
    case Fault::Kind::kKill:
      if (!on_server) {
        // the others finish, and a replacement that has joined does, too
        return job.mode == Mode::kSync && job.elastic && job.trainers > 1 &&
               std::ranges::count(job.faults, Fault::Kind::kKill, &Fault::kind) == 1;
      }
      return job.mode == Mode::kSync && job.durable && job.snapshot_every == 1 &&
             fault.restart >= 0 && fault.restart <= job.reconnect / 4 && fault.disk == 100;
  }
  return false;
}

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
  switch (fault.kind) {
    case Fault::Kind::kKill:
      if (fault.disk < 100) {
        plan(fault.at * fault.disk / 100, [this, &fault] {
          fs::remove_all(old_disk_of(fault.role));
          fs::create_directories(folder_ + "/old");
          if (fs::exists(disk_of(fault.role)))
            fs::copy(disk_of(fault.role), old_disk_of(fault.role), fs::copy_options::recursive);
        });
      }
      plan(fault.at, [=, this, &fault] { happen([&](Role&) { kill(fault); }); });
      break;
    case Fault::Kind::kPause:
      plan(fault.at, [=, this, &fault] {
        happen([&](Role& role) {
          scheduler_.pause(role.process, true);
          plan(scheduler_.now() + fault.length,
               [this, process = role.process] { scheduler_.pause(process, false); });
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
        if (fault.disk < 100 && fs::exists(old_disk_of(fault.role))) {
          fs::remove_all(disk_of(fault.role));
          fs::copy(old_disk_of(fault.role), disk_of(fault.role), fs::copy_options::recursive);
        }
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
  scheduler_.note("start: " + scheduler_.name_of(role.process));
  scheduler_.spawn(role.process, [this, number, process = role.process] {
    Status result = is_server(number) ? serve(number) : train(number, process);
    scheduler_.note(
        fmt::format("end: {}: {}", scheduler_.name_of(process),
                    result.ok() ? std::string_view("ok") : status_code_name(result.code())));
    if (!result.ok()) scheduler_.remark("  " + result.to_string());
    network_.end(process);
    at(number).result = std::move(result);
    at(number).state = State::kEnded;
    scheduler_.wake_all(this);
    (void)scheduler_.kill(process);
  });
}

bool JobRun::any_runs() const {
  return std::ranges::any_of(roles_,
                             [](const Role& role) { return role.state == State::kRunning; });
}

bool JobRun::any_trainer_left() const {
  return std::any_of(roles_.begin() + job_.servers, roles_.end(),
                     [](const Role& role) { return role.state != State::kEnded; });
}

void JobRun::drive() {
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
    const Status& result = at(role).result;
    if (at(role).state != State::kEnded || result.ok()) continue;
    if (!is_server(role)) may_lose_.insert(role - job_.servers);
    const bool out_of_turn = result.message().find("barrier first") != std::string::npos;
    if (result.code() != StatusCode::kDistributed || out_of_turn)
      checker_.add(fmt::format("{} ended with {}", role_name(job_, role), result.to_string()));
    else if (gentle_ && (at(role).starts == 1 || at(role).joined))
      checker_.add(
          fmt::format("{} did not survive: {}", role_name(job_, role), result.to_string()));
  }
  std::vector<int> starts;
  for (int t = 0; t < job_.trainers; ++t) starts.push_back(at(job_.servers + t).starts);
  checker_.judge_ends(may_lose_, starts);
}

Status JobRun::serve(int role) {
  Server::Settings settings;
  ps::ServerOptions& service = settings.service;
  service.start_timeout = std::chrono::seconds(60);
  service.silence_timeout = ms(job_.silence);
  service.elastic = job_.elastic;
  service.report_interval = milliseconds(0);
  if (job_.snapshot_every > 0) {
    service.snapshot_root = snapshots();
    service.snapshot_every = job_.mode == Mode::kSync ? job_.snapshot_every : 0;
    service.snapshot_interval =
        milliseconds(job_.mode == Mode::kSync ? 0 : 100 * job_.snapshot_every);
    service.snapshot_durable = job_.durable;
  }
  service.log = [log = log_of(role_name(job_, role))](const std::string& line) {
    log(LogLevel::kInfo, line);
  };
  const auto transport = network_.transport(scheduler_.current_process(), job_.reconnect);
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
Status JobRun::train(int role, Scheduler::ProcessId process) {
  const int number = role - job_.servers;
  Trainer::Settings settings;
  settings.trainer = number;
  settings.client.deadline = ms(job_.deadline);
  settings.client.reconnect_timeout = ms(job_.reconnect);
  settings.client.heartbeat = ms(job_.silence / 4);
  settings.log = log_of(role_name(job_, role));
  std::unique_ptr<Trainer> trainer;
  MILLRACE_RETURN_IF_ERROR(timed(process, "opening", [&] {
    MILLRACE_ASSIGN_OR_RETURN(
        trainer, jobs::TrainerJob::open({files_.program("trainer", number),
                                         files_.startup("trainer", number), files_.slices(), ""},
                                        settings, network_.transport(process, job_.reconnect)));
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
