#include "jobs/config/optimizer_config.h"

#include <array>
#include <optional>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "framework/base/errors.h"
#include "jobs/config/json_fields.h"

namespace millrace::jobs {
namespace {

using Json = nlohmann::json;

// One value of "type" and the function that reads the other members.
template <typename T>
struct ConfigKind {
  const char* type;
  T (*read)(JsonFields& fields);
};

// Reads "type" and the members that belong to it. The caller must call finish() on the fields.
template <typename T, size_t N>
StatusOr<T> read_by_type(JsonFields& fields, const std::array<ConfigKind<T>, N>& kinds) {
  std::string type;
  MILLRACE_RETURN_IF_ERROR(fields.text("type", type).require("type").status());
  std::vector<std::string> types;
  for (const ConfigKind<T>& kind : kinds) {
    if (type == kind.type) return kind.read(fields);
    types.emplace_back(kind.type);
  }
  return InvalidArgument("'{}': expected one of {}, found \"{}\"", fields.path_of("type"),
                         fmt::join(types, ", "), type);
}

// ---- methods

Momentum read_momentum(JsonFields& fields) {
  Momentum m;
  fields.number("momentum", m.momentum)
      .boolean("use_nesterov", m.use_nesterov)
      .number("rescale_grad", m.rescale_grad)
      .boolean("multi_precision", m.multi_precision);
  return m;
}

// Members that the adam family shares.
template <typename T>
T read_betas(JsonFields& fields) {
  T m;
  fields.number("beta1", m.beta1).number("beta2", m.beta2).number("epsilon", m.epsilon);
  return m;
}

constexpr std::array<ConfigKind<UpdateMethod>, 14> kMethods = {{
    {"sgd", [](JsonFields&) -> UpdateMethod { return Sgd{}; }},
    {"momentum", [](JsonFields& f) -> UpdateMethod { return read_momentum(f); }},
    {"momentum_fused",
     [](JsonFields& f) -> UpdateMethod {
       Momentum m = read_momentum(f);
       m.fuse_l2 = true;
       return m;
     }},
    {"lars_momentum",
     [](JsonFields& f) -> UpdateMethod {
       LarsMomentum m;
       f.number("momentum", m.momentum)
           .number("lars_coeff", m.lars_coeff)
           .number("lars_weight_decay", m.lars_weight_decay)
           .number("epsilon", m.epsilon)
           .number("rescale_grad", m.rescale_grad)
           .strings("exclude_from_weight_decay", m.exclude_from_weight_decay);
       return m;
     }},
    {"adagrad",
     [](JsonFields& f) -> UpdateMethod {
       Adagrad m;
       f.number("epsilon", m.epsilon)
           .number("initial_accumulator_value", m.initial_accumulator_value);
       return m;
     }},
    {"decayed_adagrad",
     [](JsonFields& f) -> UpdateMethod {
       DecayedAdagrad m;
       f.number("decay", m.decay).number("epsilon", m.epsilon);
       return m;
     }},
    {"adadelta",
     [](JsonFields& f) -> UpdateMethod {
       Adadelta m;
       f.number("epsilon", m.epsilon).number("rho", m.rho);
       return m;
     }},
    {"rmsprop",
     [](JsonFields& f) -> UpdateMethod {
       RmsProp m;
       f.number("rho", m.rho)
           .number("epsilon", m.epsilon)
           .number("momentum", m.momentum)
           .boolean("centered", m.centered);
       return m;
     }},
    {"adam",
     [](JsonFields& f) -> UpdateMethod {
       Adam m = read_betas<Adam>(f);
       f.boolean("lazy_mode", m.lazy_mode).boolean("multi_precision", m.multi_precision);
       return m;
     }},
    {"adamw",
     [](JsonFields& f) -> UpdateMethod {
       AdamW m = read_betas<AdamW>(f);
       f.number("weight_decay", m.weight_decay)
           .boolean("lazy_mode", m.lazy_mode)
           .boolean("multi_precision", m.multi_precision)
           .strings("exclude_from_weight_decay", m.exclude_from_weight_decay);
       return m;
     }},
    {"adamax", [](JsonFields& f) -> UpdateMethod { return read_betas<Adamax>(f); }},
    {"lamb",
     [](JsonFields& f) -> UpdateMethod {
       Lamb m = read_betas<Lamb>(f);
       f.number("lamb_weight_decay", m.lamb_weight_decay)
           .boolean("always_adapt", m.always_adapt)
           .boolean("multi_precision", m.multi_precision)
           .strings("exclude_from_weight_decay", m.exclude_from_weight_decay);
       return m;
     }},
    {"ftrl",
     [](JsonFields& f) -> UpdateMethod {
       Ftrl m;
       f.number("l1", m.l1).number("l2", m.l2).number("lr_power", m.lr_power);
       return m;
     }},
    {"dpsgd",
     [](JsonFields& f) -> UpdateMethod {
       Dpsgd m;
       if (const Json* const clip = f.find("clip"); clip != nullptr && clip->is_number())
         m.clip = clip->get<double>();
       f.number("batch_size", m.batch_size).number("sigma", m.sigma);
       return m;
     }},
}};

// ---- schedules

template <typename T>
Decay read_stepped(JsonFields& fields) {
  T d;
  fields.number("learning_rate", d.learning_rate)
      .number("decay_steps", d.decay_steps)
      .number("decay_rate", d.decay_rate)
      .boolean("staircase", d.staircase)
      .require("learning_rate")
      .require("decay_steps")
      .require("decay_rate");
  return d;
}

constexpr std::array<ConfigKind<Decay>, 7> kDecays = {{
    {"noam",
     [](JsonFields& f) -> Decay {
       NoamDecay d;
       f.number("d_model", d.d_model)
           .number("warmup_steps", d.warmup_steps)
           .number("learning_rate", d.learning_rate)
           .require("d_model")
           .require("warmup_steps");
       return d;
     }},
    {"exponential", read_stepped<ExponentialDecay>},
    {"natural_exp", read_stepped<NaturalExpDecay>},
    {"inverse_time", read_stepped<InverseTimeDecay>},
    {"polynomial",
     [](JsonFields& f) -> Decay {
       PolynomialDecay d;
       f.number("learning_rate", d.learning_rate)
           .number("decay_steps", d.decay_steps)
           .number("end_learning_rate", d.end_learning_rate)
           .number("power", d.power)
           .boolean("cycle", d.cycle)
           .require("learning_rate")
           .require("decay_steps");
       return d;
     }},
    {"piecewise",
     [](JsonFields& f) -> Decay {
       PiecewiseDecay d;
       f.numbers("boundaries", d.boundaries)
           .numbers("values", d.values)
           .require("boundaries")
           .require("values");
       return d;
     }},
    {"cosine",
     [](JsonFields& f) -> Decay {
       CosineDecay d;
       f.number("learning_rate", d.learning_rate)
           .number("step_each_epoch", d.step_each_epoch)
           .number("epochs", d.epochs)
           .require("learning_rate")
           .require("step_each_epoch")
           .require("epochs");
       return d;
     }},
}};

StatusOr<Decay> read_decay(const Json& json, const std::string& path) {
  JsonFields fields(json, path);
  StatusOr<Decay> decay = read_by_type(fields, kDecays);
  if (decay.ok()) MILLRACE_RETURN_IF_ERROR(fields.finish());
  return decay;
}

StatusOr<LearningRate> read_warmup(const Json& json, const std::string& path) {
  JsonFields fields(json, path);
  LinearWarmup warmup;
  fields.ignore({"type"})
      .number("warmup_steps", warmup.warmup_steps)
      .number("start_lr", warmup.start_lr)
      .number("end_lr", warmup.end_lr);
  for (const char* const key : {"after", "warmup_steps", "start_lr", "end_lr"}) fields.require(key);
  const Json* const after = fields.find("after");
  MILLRACE_RETURN_IF_ERROR(fields.finish());
  if (after->is_object()) {
    MILLRACE_ASSIGN_OR_RETURN(warmup.after, read_decay(*after, fields.path_of("after")));
  } else {
    double rate = 0;
    MILLRACE_RETURN_IF_ERROR(fields.number("after", rate).status());
    warmup.after = rate;
  }
  return LearningRate(std::move(warmup));
}

// Scheduler objects of 2.x, which the trainer steps. Only their initial rate goes into the program.
struct Scheduler {
  const char* type;
  void (*read)(JsonFields& fields, double& initial);
};

void read_fading(JsonFields& fields, double& initial) {
  double gamma = 0;
  fields.number("learning_rate", initial)
      .number("gamma", gamma)
      .require("learning_rate")
      .require("gamma");
}

constexpr std::array<Scheduler, 4> kSchedulers = {{
    {"exponential_scheduler", read_fading},
    {"natural_exp_scheduler", read_fading},
    {"inverse_time_scheduler", read_fading},
    {"noam_scheduler",
     [](JsonFields& fields, double& initial) {
       double ignored = 0;
       fields.number("d_model", ignored)
           .number("warmup_steps", ignored)
           .number("learning_rate", ignored)
           .require("d_model")
           .require("warmup_steps");
       initial = 0;  // the step before the first one
     }},
}};

StatusOr<LearningRate> read_scheduler(const Scheduler& scheduler, JsonFields& fields) {
  SteppedRate rate;
  scheduler.read(fields, rate.initial);
  MILLRACE_RETURN_IF_ERROR(fields.finish());
  return LearningRate(rate);
}

// A plain schedule, or one that starts after a linear warm-up.
StatusOr<LearningRate> read_schedule(const Json& json, const std::string& path) {
  JsonFields fields(json, path);
  std::string type;
  MILLRACE_RETURN_IF_ERROR(fields.text("type", type).status());
  if (type == "warmup") return read_warmup(json, path);
  if (type == "constant") {
    double rate = 0;
    MILLRACE_RETURN_IF_ERROR(
        fields.number("learning_rate", rate).require("learning_rate").finish());
    return LearningRate(rate);
  }
  for (const Scheduler& scheduler : kSchedulers) {
    if (type == scheduler.type) return read_scheduler(scheduler, fields);
  }
  StatusOr<Decay> decay = read_decay(json, path);
  if (!decay.ok()) return std::move(decay).status();
  return LearningRate(*std::move(decay));
}

// ---- clips and regularizers

constexpr std::array<ConfigKind<GradientClip>, 3> kClips = {{
    {"value",
     [](JsonFields& f) -> GradientClip {
       ClipByValue clip;
       f.number("max", clip.max).number("min", clip.min).require("max");
       return clip;
     }},
    {"norm",
     [](JsonFields& f) -> GradientClip {
       ClipByNorm clip;
       f.number("clip_norm", clip.clip_norm).require("clip_norm");
       return clip;
     }},
    {"global_norm",
     [](JsonFields& f) -> GradientClip {
       ClipByGlobalNorm clip;
       f.number("clip_norm", clip.clip_norm)
           .text("group_name", clip.group_name)
           .require("clip_norm");
       return clip;
     }},
}};

template <typename T>
Regularizer read_coeff(JsonFields& fields) {
  T decay;
  fields.number("coeff", decay.coeff).require("coeff");
  return decay;
}

constexpr std::array<ConfigKind<Regularizer>, 2> kRegularizers = {
    {{"l1", read_coeff<L1Decay>}, {"l2", read_coeff<L2Decay>}}};

template <typename T, size_t N>
StatusOr<T> read_whole(const Json& json, const std::string& path,
                       const std::array<ConfigKind<T>, N>& kinds) {
  JsonFields fields(json, path);
  StatusOr<T> value = read_by_type(fields, kinds);
  if (value.ok()) MILLRACE_RETURN_IF_ERROR(fields.finish());
  return value;
}

Status read_rate(JsonFields& fields, MinimizeOptions& options) {
  std::optional<double> constant;
  MILLRACE_RETURN_IF_ERROR(fields.number("learning_rate", constant).status());
  if (const Json* const schedule = fields.find("schedule")) {
    // which one counts would be a guess
    const auto own = schedule->is_object() ? schedule->find("learning_rate") : schedule->end();
    if (constant && own != schedule->end() && own->is_number() && own->get<double>() != *constant)
      return InvalidArgument("'{}': expected that of '{}', {}, found {}",
                             fields.path_of("learning_rate"), fields.path_of("schedule"),
                             own->get<double>(), *constant);
    MILLRACE_ASSIGN_OR_RETURN(options.learning_rate,
                              read_schedule(*schedule, fields.path_of("schedule")));
    return Ok();
  }
  // releases of the original had different rates where none was given
  if (!constant)
    return InvalidArgument("'{}': expected a number, or a schedule as '{}', found neither",
                           fields.path_of("learning_rate"), fields.path_of("schedule"));
  options.learning_rate = *constant;
  return Ok();
}

Status read_gradient_steps(JsonFields& fields, MinimizeOptions& options) {
  const Json* const clip = fields.find("clip");
  // dpsgd has a number called "clip" among its hyper-parameters
  if (clip != nullptr && !(std::holds_alternative<Dpsgd>(options.method) && clip->is_number())) {
    MILLRACE_ASSIGN_OR_RETURN(options.clip, read_clip(*clip, fields.path_of("clip")));
  }
  if (const Json* const regularization = fields.find("regularization")) {
    MILLRACE_ASSIGN_OR_RETURN(options.regularization,
                              read_regularizer(*regularization, fields.path_of("regularization")));
  }
  return Ok();
}

}  // namespace

StatusOr<Regularizer> read_regularizer(const Json& json, const std::string& path) {
  return read_whole(json, path, kRegularizers);
}

StatusOr<GradientClip> read_clip(const Json& json, const std::string& path) {
  return read_whole(json, path, kClips);
}

Status read_optimizer(const Json& json, const std::string& path, const std::string& loss,
                      MinimizeOptions& options) {
  JsonFields fields(json, path);
  MILLRACE_ASSIGN_OR_RETURN(options.method, read_by_type(fields, kMethods));
  MILLRACE_RETURN_IF_ERROR(read_rate(fields, options));
  MILLRACE_RETURN_IF_ERROR(read_gradient_steps(fields, options));
  std::vector<std::string> own;
  std::string named_loss = loss;
  fields.strings("parameter_list", own)
      .text("name", options.name)
      .text("loss", named_loss)
      .ignore({"learning_rate_var"});
  MILLRACE_RETURN_IF_ERROR(fields.finish());
  if (named_loss != loss) {
    return InvalidArgument(
        "'{}': expected \"{}\", the loss at the same position in 'losses', found \"{}\"",
        fields.path_of("loss"), loss, named_loss);
  }
  if (!own.empty()) options.parameters = std::move(own);
  return Ok();
}

}  // namespace millrace::jobs
