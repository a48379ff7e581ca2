#include <millrace/api/training.h>
#include <nanobind/stl/map.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/set.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/variant.h>
#include <nanobind/stl/vector.h>

#include "python/core/core.h"

namespace millrace::python {
namespace {

#define FIELD(name) .def_rw(#name, &T::name)

void bind_methods(nb::module_& m) {
  {
    using T = Sgd;
    nb::class_<T>(m, "SGD").def(nb::init<>());
  }
  {
    using T = Momentum;
    nb::class_<T>(m, "Momentum")
        .def(nb::init<>()) FIELD(momentum) FIELD(use_nesterov) FIELD(rescale_grad) FIELD(fuse_l2)
            FIELD(multi_precision);
  }
  {
    using T = LarsMomentum;
    nb::class_<T>(m, "LarsMomentum")
        .def(nb::init<>()) FIELD(momentum) FIELD(lars_coeff) FIELD(lars_weight_decay) FIELD(epsilon)
            FIELD(rescale_grad) FIELD(exclude_from_weight_decay);
  }
  {
    using T = Adagrad;
    nb::class_<T>(m, "Adagrad").def(nb::init<>()) FIELD(epsilon) FIELD(initial_accumulator_value);
  }
  {
    using T = DecayedAdagrad;
    nb::class_<T>(m, "DecayedAdagrad").def(nb::init<>()) FIELD(decay) FIELD(epsilon);
  }
  {
    using T = Adadelta;
    nb::class_<T>(m, "Adadelta").def(nb::init<>()) FIELD(epsilon) FIELD(rho);
  }
  {
    using T = RmsProp;
    nb::class_<T>(m, "RMSProp")
        .def(nb::init<>()) FIELD(rho) FIELD(epsilon) FIELD(momentum) FIELD(centered);
  }
  {
    using T = Adam;
    nb::class_<T>(m, "Adam").def(nb::init<>()) FIELD(beta1) FIELD(beta2) FIELD(epsilon)
        FIELD(lazy_mode) FIELD(multi_precision);
  }
  {
    using T = AdamW;
    nb::class_<T>(m, "AdamW")
        .def(nb::init<>()) FIELD(beta1) FIELD(beta2) FIELD(epsilon) FIELD(weight_decay)
            FIELD(lazy_mode) FIELD(multi_precision) FIELD(exclude_from_weight_decay);
  }
  {
    using T = Adamax;
    nb::class_<T>(m, "Adamax").def(nb::init<>()) FIELD(beta1) FIELD(beta2) FIELD(epsilon);
  }
  {
    using T = Lamb;
    nb::class_<T>(m, "Lamb").def(nb::init<>()) FIELD(lamb_weight_decay) FIELD(beta1) FIELD(beta2)
        FIELD(epsilon) FIELD(always_adapt) FIELD(multi_precision) FIELD(exclude_from_weight_decay);
  }
  {
    using T = Ftrl;
    nb::class_<T>(m, "Ftrl").def(nb::init<>()) FIELD(l1) FIELD(l2) FIELD(lr_power);
  }
  {
    using T = Dpsgd;
    nb::class_<T>(m, "Dpsgd").def(nb::init<>()) FIELD(clip) FIELD(batch_size) FIELD(sigma);
  }
}

void bind_schedules(nb::module_& m) {
  {
    using T = NoamDecay;
    nb::class_<T>(m, "NoamDecay")
        .def(nb::init<>()) FIELD(d_model) FIELD(warmup_steps) FIELD(learning_rate);
  }
  {
    using T = ExponentialDecay;
    nb::class_<T>(m, "ExponentialDecay")
        .def(nb::init<>()) FIELD(learning_rate) FIELD(decay_steps) FIELD(decay_rate)
            FIELD(staircase);
  }
  {
    using T = NaturalExpDecay;
    nb::class_<T>(m, "NaturalExpDecay")
        .def(nb::init<>()) FIELD(learning_rate) FIELD(decay_steps) FIELD(decay_rate)
            FIELD(staircase);
  }
  {
    using T = InverseTimeDecay;
    nb::class_<T>(m, "InverseTimeDecay")
        .def(nb::init<>()) FIELD(learning_rate) FIELD(decay_steps) FIELD(decay_rate)
            FIELD(staircase);
  }
  {
    using T = PolynomialDecay;
    nb::class_<T>(m, "PolynomialDecay")
        .def(nb::init<>()) FIELD(learning_rate) FIELD(decay_steps) FIELD(end_learning_rate)
            FIELD(power) FIELD(cycle);
  }
  {
    using T = PiecewiseDecay;
    nb::class_<T>(m, "PiecewiseDecay").def(nb::init<>()) FIELD(boundaries) FIELD(values);
  }
  {
    using T = CosineDecay;
    nb::class_<T>(m, "CosineDecay")
        .def(nb::init<>()) FIELD(learning_rate) FIELD(step_each_epoch) FIELD(epochs);
  }
  {
    using T = LinearWarmup;
    nb::class_<T>(m, "LinearWarmup")
        .def(nb::init<>()) FIELD(after) FIELD(warmup_steps) FIELD(start_lr) FIELD(end_lr);
  }
  {
    using T = RateVar;
    nb::class_<T>(m, "RateVar").def(nb::init<>()) FIELD(name);
  }
  {
    using T = SteppedRate;
    nb::class_<T>(m, "SteppedRate").def(nb::init<>()) FIELD(initial);
  }
}

void bind_clips(nb::module_& m) {
  {
    using T = ClipByValue;
    nb::class_<T>(m, "ClipByValue").def(nb::init<>()) FIELD(max) FIELD(min);
  }
  {
    using T = ClipByNorm;
    nb::class_<T>(m, "ClipByNorm").def(nb::init<>()) FIELD(clip_norm);
  }
  {
    using T = ClipByGlobalNorm;
    nb::class_<T>(m, "ClipByGlobalNorm").def(nb::init<>()) FIELD(clip_norm) FIELD(group_name);
  }
  {
    using T = ErrorClip;
    nb::class_<T>(m, "ErrorClip").def(nb::init<>()) FIELD(min) FIELD(max);
  }
  {
    using T = L1Decay;
    nb::class_<T>(m, "L1Decay").def(nb::init<>()) FIELD(coeff);
  }
  {
    using T = L2Decay;
    nb::class_<T>(m, "L2Decay").def(nb::init<>()) FIELD(coeff);
  }
  {
    using T = ParameterOptions;
    nb::class_<T>(m, "ParameterOptions")
        .def(nb::init<>()) FIELD(learning_rate) FIELD(regularizer) FIELD(need_clip) FIELD(clip);
  }
  {
    using T = MinimizeOptions;
    nb::class_<T>(m, "MinimizeOptions")
        .def(nb::init<>()) FIELD(method) FIELD(learning_rate) FIELD(clip) FIELD(regularization)
            FIELD(parameters) FIELD(no_grad) FIELD(parameter_options) FIELD(error_clips)
                FIELD(name);
  }
}

#undef FIELD

nb::list texts_of(const std::vector<Status>& warnings) {
  nb::list texts;
  for (const Status& warning : warnings) texts.append(exception_of(warning));
  return texts;
}

}  // namespace

void bind_training(nb::module_& m) {
  bind_methods(m);
  bind_schedules(m);
  bind_clips(m);
  m.def("append_backward",
        [](const Handle& main, const std::string& loss, const std::vector<std::string>& parameters,
           const std::set<std::string>& no_grad) {
          const api::BackwardResult result = without_gil([&] {
            return value_of(api::append_backward(*main.program, loss, parameters, no_grad));
          });
          return nb::make_tuple(Handle{result.main}, result.param_grads, texts_of(result.warnings));
        });
  m.def("minimize", [](const Handle& main, const Handle& startup, const std::string& loss,
                       const MinimizeOptions& options) {
    const api::MinimizeResult result = without_gil(
        [&] { return value_of(api::minimize(*main.program, *startup.program, loss, options)); });
    return nb::make_tuple(Handle{result.main}, Handle{result.startup}, result.param_grads,
                          result.learning_rate, texts_of(result.warnings));
  });
}

}  // namespace millrace::python
