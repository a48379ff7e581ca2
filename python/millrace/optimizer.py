"""Optimizers, schedules, clips and decays of minimize(): names and defaults of the original."""

from __future__ import annotations

from . import _core
from ._options import option_class

SGD = option_class(_core.SGD, "p -= rate * g")
Momentum = option_class(_core.Momentum, "v = momentum * v + g; p -= rate * v", "momentum")
LarsMomentum = option_class(_core.LarsMomentum, "Momentum with a rate per parameter from the norms of p and g.",
                            "momentum")
Adagrad = option_class(_core.Adagrad, "Rate divided by the root of the sum of squared gradients.")
DecayedAdagrad = option_class(_core.DecayedAdagrad, "Adagrad whose sum decays.")
Adadelta = option_class(_core.Adadelta, "Update from the ratio of running averages.")
RMSProp = option_class(_core.RMSProp, "Rate divided by the root of a running average of squared gradients.")
Adam = option_class(_core.Adam, "Bias-corrected running averages of the gradient and of its square.")
AdamW = option_class(_core.AdamW, "Adam with decoupled weight decay.")
Adamax = option_class(_core.Adamax, "Adam with a decayed maximum in place of the average of squares.")
Lamb = option_class(_core.Lamb, "Adam scaled by the ratio of the norms of parameter and update.")
Ftrl = option_class(_core.Ftrl, "Follow the regularized leader.")
Dpsgd = option_class(_core.Dpsgd, "SGD with a clipped gradient and noise.")

NoamDecay = option_class(_core.NoamDecay, "learning_rate * d_model^-0.5 * min(s^-0.5, s * warmup_steps^-1.5)")
ExponentialDecay = option_class(_core.ExponentialDecay, "learning_rate * decay_rate^(s / decay_steps)")
NaturalExpDecay = option_class(_core.NaturalExpDecay, "learning_rate * e^(-decay_rate * s / decay_steps)")
InverseTimeDecay = option_class(_core.InverseTimeDecay, "learning_rate / (1 + decay_rate * s / decay_steps)")
PolynomialDecay = option_class(_core.PolynomialDecay, "From learning_rate to end_learning_rate in decay_steps.")
PiecewiseDecay = option_class(_core.PiecewiseDecay, "values[i] while s < boundaries[i].")
CosineDecay = option_class(_core.CosineDecay, "Half a cosine over epochs.")
LinearWarmup = option_class(_core.LinearWarmup, "From start_lr to end_lr in warmup_steps, then `after`.")
RateVar = option_class(_core.RateVar, "The rate is in a var of block 0 that the program computes.", "name")
SteppedRate = option_class(_core.SteppedRate, "The caller sets the rate between steps.", "initial")

ClipByValue = option_class(_core.ClipByValue, "Clips every element to [min, max]; without min to [-max, max].", "max")
ClipByNorm = option_class(_core.ClipByNorm, "Scales each gradient to a norm of at most clip_norm.", "clip_norm")
ClipByGlobalNorm = option_class(_core.ClipByGlobalNorm, "Scales all gradients of a group by one factor.", "clip_norm")
ErrorClip = option_class(_core.ErrorClip, "Bounds of the gradient of an activation.")
L1Decay = option_class(_core.L1Decay, "Adds coeff * sign(p) to the gradient.", "coeff")
L2Decay = option_class(_core.L2Decay, "Adds coeff * p to the gradient.", "coeff")
ParameterOptions = option_class(_core.ParameterOptions, "Options of one parameter.")
